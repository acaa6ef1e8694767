"""Import this after LIBERO in the process that slots are forked from: all of them then have the compiled loop."""

from sparring.env_worker.benchmarks._libero.control_loop import warm_up

warm_up()
