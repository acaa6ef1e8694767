"""What is held against a policy's training: each rule is a function, whose docstring says what should hold."""
