"""Whole programs that use Sparring; run them from the folder above."""
