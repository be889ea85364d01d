# The whole harness on CPU cores, for machines that have Docker and no Linux:
#   docker build --tag spo-bench .
#   docker run --rm --volume spo-outputs:/home/spo/spo-bench/outputs spo-bench
# Docker refuses user namespaces in a container, so Landlock confines the programs that are judged;
# --security-opt seccomp=unconfined allows them.
FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home spo \
    && install --directory --owner spo /home/spo/spo-bench /home/spo/spo-bench/outputs
USER spo
WORKDIR /home/spo/spo-bench
COPY --chown=spo . .
# torch without CUDA, 200 MB in place of some GB
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
RUN make install
CMD ["make", "run"]
