"""Training by another library, TRL, on the benchmarks' problems and with our rewards."""
