"""Pickles that are read and written without Python's unpickler: LeRobot's asynchronous wire consists of them.

A pickle is a program that may call anything. `reading` follows it as data: what it names is looked up in a short list,
and nothing else is ever imported, made or called.
"""
