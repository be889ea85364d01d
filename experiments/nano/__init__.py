"""The nano model: a Llama-shaped model of about a million parameters, pretrained from scratch."""
