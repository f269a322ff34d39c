"""What every part of the store builds on: engine, transactions, fencing, lease, encryption."""
