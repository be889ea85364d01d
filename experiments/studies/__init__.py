"""What other rooms still take from the former room of studies."""
