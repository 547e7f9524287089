"""The program `bt-node`: a volunteer lends a computer to a swarm."""
