"""Amazon S3 and compatible stores, through boto3."""
