"""Containers: the places where worker processes are started, stopped and watched."""
