"""Servers that are killed, clients that write down what they sent, and the questions to ask afterwards."""
