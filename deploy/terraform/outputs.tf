output "lake_root" {
  description = "Host of the connection cdc_lake_default."
  value       = "s3://${aws_s3_bucket.lake.bucket}/lake"
}

output "archive_root" {
  description = "Host of the connection cdc_archive_default."
  value       = "s3://${data.aws_s3_bucket.archive.bucket}/${var.archive_prefix}"
}

output "application_id" {
  description = "Airflow variable cdc_emr_application."
  value       = aws_emrserverless_application.merges.id
}

output "job_role_arn" {
  description = "Airflow variable cdc_emr_role."
  value       = aws_iam_role.jobs.arn
}

output "log_uri" {
  description = "Airflow variable cdc_emr_logs."
  value       = "s3://${aws_s3_bucket.lake.bucket}/logs/"
}
