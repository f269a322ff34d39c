"""The container kind `kubernetes`: each launch of a worker is a Deployment with one pod."""
