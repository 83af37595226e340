"""The adapter of S3: it owns boto3, the retries and what its answers mean.

Start at `adapter`.
"""
