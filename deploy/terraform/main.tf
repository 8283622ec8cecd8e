# A lake's bucket, the role of the jobs, and an EMR Serverless application for the Dag dags/submitters/cdc_emr_serverless.py.

data "aws_caller_identity" "current" {}

data "aws_s3_bucket" "archive" {
  bucket = var.archive_bucket
}

# The lake

resource "aws_s3_bucket" "lake" {
  bucket = var.lake_bucket

  tags = {
    Name = var.name
  }
}

resource "aws_s3_bucket_public_access_block" "lake" {
  bucket                  = aws_s3_bucket.lake.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "lake" {
  bucket = aws_s3_bucket.lake.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "lake" {
  bucket = aws_s3_bucket.lake.id

  rule {
    apply_server_side_encryption_by_default {
      # A KMS key of yours ("aws:kms") also needs kms:Decrypt and kms:GenerateDataKey in the role.
      sse_algorithm = "AES256"
    }
  }
}

# Merges and VACUUM replace and remove files: without a rule the bucket would keep each of them for ever.
resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  depends_on = [aws_s3_bucket_versioning.lake]

  bucket = aws_s3_bucket.lake.id

  rule {
    id     = "replaced-files"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}

# The jobs' role: reads the archive, writes the lake, and nothing else

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["emr-serverless.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

data "aws_iam_policy_document" "stores" {
  # Of the whole bucket: with a condition on the folder, S3 would answer "denied" for a file that is missing.
  statement {
    sid       = "ListArchive"
    actions   = ["s3:ListBucket"]
    resources = [data.aws_s3_bucket.archive.arn]
  }

  statement {
    sid       = "ReadArchive"
    actions   = ["s3:GetObject"]
    resources = ["${data.aws_s3_bucket.archive.arn}/${var.archive_prefix}/*"]
  }

  statement {
    sid       = "ListLake"
    actions   = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
    resources = [aws_s3_bucket.lake.arn]
  }

  statement {
    sid = "WriteLake"
    actions = [
      "s3:AbortMultipartUpload",
      "s3:DeleteObject",
      "s3:GetObject",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
    resources = ["${aws_s3_bucket.lake.arn}/*"]
  }
}

resource "aws_iam_role" "jobs" {
  name               = "${var.name}-jobs"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_role_policy" "stores" {
  name   = "stores"
  role   = aws_iam_role.jobs.id
  policy = data.aws_iam_policy_document.stores.json
}

# The application

resource "aws_emrserverless_application" "merges" {
  name          = var.name
  release_label = var.release_label
  type          = "spark"

  dynamic "image_configuration" {
    for_each = var.image_uri == null ? [] : [var.image_uri]

    content {
      image_uri = image_configuration.value
    }
  }

  maximum_capacity {
    cpu    = "${var.maximum_cpu} vCPU"
    memory = "${var.maximum_memory_gb} GB"
  }

  auto_start_configuration {
    enabled = true
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 15
  }

  tags = {
    Name = var.name
  }
}
