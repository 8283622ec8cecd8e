variable "name" {
  description = "Name of the application and the role, and tag of all."
  type        = string
  default     = "airflow-cdc"
}

variable "lake_bucket" {
  description = "Name of the bucket that is made for the lake. The lake's root is s3://NAME/lake."
  type        = string
}

variable "archive_bucket" {
  description = "Name of the bucket that holds the archive. It exists: a Kafka sink writes it."
  type        = string
}

variable "archive_prefix" {
  description = "Folder of the archive in its bucket, without slashes at its ends, such as topics."
  type        = string

  validation {
    condition     = var.archive_prefix != "" && trim(var.archive_prefix, "/") == var.archive_prefix
    error_message = "A folder without a slash at its ends, such as topics."
  }
}

variable "release_label" {
  description = "Release of EMR. Its Spark must be one that the package runs on."
  type        = string
  default     = "emr-spark-8.0.0"
}

variable "image_uri" {
  description = "Image in ECR with Python and the package, built upon that release. Null: the release's own."
  type        = string
  default     = null
}

variable "maximum_cpu" {
  description = "vCPUs that all jobs together may take."
  type        = number
  default     = 16
}

variable "maximum_memory_gb" {
  description = "Memory that all jobs together may take, in GB."
  type        = number
  default     = 64
}

variable "noncurrent_days" {
  description = "Days for which the bucket keeps replaced and removed files."
  type        = number
  default     = 30
}
