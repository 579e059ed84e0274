# The alerts of Holdfast for Google Cloud Monitoring. Made by `holdfast alerts rules --format terraform`; change
# holdfast.toml instead and make it again.

terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.0"
    }
  }
}

variable "project" {
  description = "The project that the policies are in."
  type        = string
}

variable "notification_channels" {
  description = "Who is told, by severity: lists of channel names for warning and critical."
  type        = map(list(string))
  default     = {}
}

variable "subscriptions" {
  description = "Ids of the Pub/Sub subscriptions that are watched. Empty: all of the project."
  type        = list(string)
  default     = []
}

variable "critical_subscriptions" {
  description = "Ids of those that the rules for critical subscriptions keep to. Empty: the ones above."
  type        = list(string)
  default     = []
}

variable "services" {
  description = "Names of the Cloud Run services that Pub/Sub pushes to. Empty: all of the project."
  type        = list(string)
  default     = []
}

variable "runbook_url" {
  description = "The page that has the runbook's sections."
  type        = string
  default     = "docs/runbook.md"
}

locals {
  critical               = length(var.critical_subscriptions) == 0 ? var.subscriptions : var.critical_subscriptions
  critical_subscriptions = length(local.critical) == 0 ? ".+" : join("|", local.critical)
  subscriptions          = length(var.subscriptions) == 0 ? ".+" : join("|", var.subscriptions)
  services               = length(var.services) == 0 ? ".+" : join("|", var.services)
}

resource "google_monitoring_alert_policy" "dead_letters_wait" {
  project               = var.project
  display_name          = "HoldfastDeadLettersWait"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastDeadLettersWait"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_desk_open_failures{subscription=~\"projects/[^/]+/subscriptions/(?:${local.critical_subscriptions})\"}) > 0"
      duration                  = "300s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeadLettersWait"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Failed messages of a subscription have been in nobody's hands for 5 minutes.\n\nWhat to do: ${var.runbook_url}#dead-letters-wait"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "dead_letters_stay" {
  project               = var.project
  display_name          = "HoldfastDeadLettersStay"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastDeadLettersStay"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_desk_open_failures{subscription=~\"projects/[^/]+/subscriptions/(?:${local.critical_subscriptions})\"}) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeadLettersStay"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Failed messages of a subscription have been in nobody's hands for 15 minutes.\n\nWhat to do: ${var.runbook_url}#dead-letters-wait"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "dead_letters_burst" {
  project               = var.project
  display_name          = "HoldfastDeadLettersBurst"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastDeadLettersBurst"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (sum by (subscription, job, instance) (holdfast_desk_recorded_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.critical_subscriptions})\"} unless holdfast_desk_recorded_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.critical_subscriptions})\"} offset 10m and on (job, instance) holdfast_start_time_seconds offset 10m or increase(holdfast_desk_recorded_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.critical_subscriptions})\"}[10m]))) > 10"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeadLettersBurst"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 10 messages of a subscription failed within 10 minutes.\n\nWhat to do: ${var.runbook_url}#dead-letters-burst"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "dead_letters_burst_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastDeadLettersBurstOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastDeadLettersBurstOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (subscription_id) (increase(pubsub_googleapis_com:subscription_dead_letter_message_count{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.critical_subscriptions}\"}[10m])) > 10"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeadLettersBurstOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 10 messages of a subscription failed within 10 minutes.\n\nWhat to do: ${var.runbook_url}#dead-letters-burst"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "dead_letters_grow" {
  project               = var.project
  display_name          = "HoldfastDeadLettersGrow"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastDeadLettersGrow"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (sum by (subscription, job, instance) (increase(holdfast_desk_recorded_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[10m]))) - (max by (subscription) (sum by (subscription, job, instance) (increase(holdfast_desk_settled_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[10m]))) or max by (subscription) (sum by (subscription, job, instance) (increase(holdfast_desk_recorded_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[10m]))) * 0) > 0"
      duration                  = "1800s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeadLettersGrow"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More messages of a subscription fail than are mended, for 30 minutes now.\n\nWhat to do: ${var.runbook_url}#dead-letters-grow"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "permanent_failure" {
  project               = var.project
  display_name          = "HoldfastPermanentFailure"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastPermanentFailure"
    condition_prometheus_query_language {
      query                     = "max (sum by (job, instance) (dlq_permanent_failures_total unless dlq_permanent_failures_total offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(dlq_permanent_failures_total[5m]))) > 0"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastPermanentFailure"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "A failed message has become a permanent failure: a person must see to it.\n\nWhat to do: ${var.runbook_url}#permanent-failure"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "review_queue_long" {
  project               = var.project
  display_name          = "HoldfastReviewQueueLong"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastReviewQueueLong"
    condition_prometheus_query_language {
      query                     = "max (holdfast_desk_failures{status=\"permanent_failure\"}) >= 50"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastReviewQueueLong"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "50 permanent failures or more wait for a person.\n\nWhat to do: ${var.runbook_url}#many-permanent-failures"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "retry_queue_long" {
  project               = var.project
  display_name          = "HoldfastRetryQueueLong"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastRetryQueueLong"
    condition_prometheus_query_language {
      query                     = "max (holdfast_desk_failures{status=\"queued_for_retry\"}) >= 100"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastRetryQueueLong"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "100 failed messages or more wait for a retry.\n\nWhat to do: ${var.runbook_url}#the-retry-queue-grows"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "retries_fail" {
  project               = var.project
  display_name          = "HoldfastRetriesFail"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastRetriesFail"
    condition_prometheus_query_language {
      query                     = "max (dlq_retry_success_rate) < 0.95"
      duration                  = "1800s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastRetriesFail"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Of the failed messages of the last 7 days, retries have mended less than 95 %.\n\nWhat to do: ${var.runbook_url}#retries-fail"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "server_errors" {
  project               = var.project
  display_name          = "HoldfastServerErrors"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastServerErrors"
    condition_prometheus_query_language {
      query                     = "sum (increase(holdfast_consumer_answers_total{status=~\"5..\"}[2m])) / (sum (increase(holdfast_consumer_answers_total{status!=\"429\"}[2m])) >= 20) > 0.01"
      duration                  = "300s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrors"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 1 % of push requests have been answered with 5xx for 5 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "server_errors_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastServerErrorsOnGoogleCloud"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastServerErrorsOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code_class=\"5xx\"}[2m])) / (sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code!=\"429\"}[2m])) >= 20) > 0.01"
      duration                  = "300s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrorsOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 1 % of push requests have been answered with 5xx for 5 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "server_errors_high" {
  project               = var.project
  display_name          = "HoldfastServerErrorsHigh"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastServerErrorsHigh"
    condition_prometheus_query_language {
      query                     = "sum (increase(holdfast_consumer_answers_total{status=~\"5..\"}[2m])) / (sum (increase(holdfast_consumer_answers_total{status!=\"429\"}[2m])) >= 20) > 0.05"
      duration                  = "300s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrorsHigh"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 5 % of push requests have been answered with 5xx for 5 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "server_errors_high_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastServerErrorsHighOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastServerErrorsHighOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code_class=\"5xx\"}[2m])) / (sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code!=\"429\"}[2m])) >= 20) > 0.05"
      duration                  = "300s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrorsHighOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 5 % of push requests have been answered with 5xx for 5 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "server_errors_last" {
  project               = var.project
  display_name          = "HoldfastServerErrorsLast"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastServerErrorsLast"
    condition_prometheus_query_language {
      query                     = "sum (holdfast_consumer_answers_total{status=~\"5..\"} unless holdfast_consumer_answers_total{status=~\"5..\"} offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(holdfast_consumer_answers_total{status=~\"5..\"}[5m])) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrorsLast"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Push requests have been answered with 5xx again and again for 15 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "server_errors_last_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastServerErrorsLastOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastServerErrorsLastOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code_class=\"5xx\"}[5m])) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastServerErrorsLastOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Push requests have been answered with 5xx again and again for 15 minutes.\n\nWhat to do: ${var.runbook_url}#server-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "client_errors" {
  project               = var.project
  display_name          = "HoldfastClientErrors"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastClientErrors"
    condition_prometheus_query_language {
      query                     = "sum (increase(holdfast_consumer_answers_total{status=~\"4..\",status!=\"429\"}[5m])) / (sum (increase(holdfast_consumer_answers_total{status!=\"429\"}[5m])) >= 20) > 0.001"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastClientErrors"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 0.1 % of push requests have been answered with 4xx for 10 minutes.\n\nWhat to do: ${var.runbook_url}#client-errors"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "client_errors_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastClientErrorsOnGoogleCloud"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastClientErrorsOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code_class=\"4xx\",response_code!=\"429\"}[5m])) / (sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code!=\"429\"}[5m])) >= 20) > 0.001"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastClientErrorsOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 0.1 % of push requests have been answered with 4xx for 10 minutes.\n\nWhat to do: ${var.runbook_url}#client-errors"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "client_errors_high" {
  project               = var.project
  display_name          = "HoldfastClientErrorsHigh"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastClientErrorsHigh"
    condition_prometheus_query_language {
      query                     = "sum (increase(holdfast_consumer_answers_total{status=~\"4..\",status!=\"429\"}[5m])) / (sum (increase(holdfast_consumer_answers_total{status!=\"429\"}[5m])) >= 20) > 0.01"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastClientErrorsHigh"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 1 % of push requests have been answered with 4xx for 10 minutes.\n\nWhat to do: ${var.runbook_url}#client-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "client_errors_high_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastClientErrorsHighOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastClientErrorsHighOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code_class=\"4xx\",response_code!=\"429\"}[5m])) / (sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\",service_name=~\"${local.services}\",response_code!=\"429\"}[5m])) >= 20) > 0.01"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastClientErrorsHighOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 1 % of push requests have been answered with 4xx for 10 minutes.\n\nWhat to do: ${var.runbook_url}#client-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "oldest_unacked" {
  project               = var.project
  display_name          = "HoldfastOldestUnacked"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastOldestUnacked"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_broker_oldest_unacked_seconds{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}) > 300"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastOldestUnacked"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The oldest message of a subscription has not been acked for more than 5 minutes.\n\nWhat to do: ${var.runbook_url}#oldest-unacked"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "oldest_unacked_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastOldestUnackedOnGoogleCloud"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastOldestUnackedOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "max by (subscription_id) (pubsub_googleapis_com:subscription_oldest_unacked_message_age{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"}) > 300"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastOldestUnackedOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The oldest message of a subscription has not been acked for more than 5 minutes.\n\nWhat to do: ${var.runbook_url}#oldest-unacked"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "oldest_unacked_high" {
  project               = var.project
  display_name          = "HoldfastOldestUnackedHigh"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastOldestUnackedHigh"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_broker_oldest_unacked_seconds{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}) > 900"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastOldestUnackedHigh"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The oldest message of a subscription has not been acked for more than 15 minutes.\n\nWhat to do: ${var.runbook_url}#oldest-unacked"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "oldest_unacked_high_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastOldestUnackedHighOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastOldestUnackedHighOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "max by (subscription_id) (pubsub_googleapis_com:subscription_oldest_unacked_message_age{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"}) > 900"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastOldestUnackedHighOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The oldest message of a subscription has not been acked for more than 15 minutes.\n\nWhat to do: ${var.runbook_url}#oldest-unacked"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "backlog_grows" {
  project               = var.project
  display_name          = "HoldfastBacklogGrows"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastBacklogGrows"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_broker_backlog{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} - holdfast_broker_backlog{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} offset 5m) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastBacklogGrows"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The backlog of a subscription has been growing for 15 minutes.\n\nWhat to do: ${var.runbook_url}#backlog-grows"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "backlog_grows_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastBacklogGrowsOnGoogleCloud"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastBacklogGrowsOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "max by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"} - pubsub_googleapis_com:subscription_num_undelivered_messages{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"} offset 5m) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastBacklogGrowsOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The backlog of a subscription has been growing for 15 minutes.\n\nWhat to do: ${var.runbook_url}#backlog-grows"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "backlog_grows_on" {
  project               = var.project
  display_name          = "HoldfastBacklogGrowsOn"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastBacklogGrowsOn"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_broker_backlog{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} - holdfast_broker_backlog{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} offset 5m) > 0"
      duration                  = "1800s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastBacklogGrowsOn"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The backlog of a subscription has been growing for 30 minutes.\n\nWhat to do: ${var.runbook_url}#backlog-grows"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "backlog_grows_on_on_google_cloud" {
  project               = var.project
  display_name          = "HoldfastBacklogGrowsOnOnGoogleCloud"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastBacklogGrowsOnOnGoogleCloud"
    condition_prometheus_query_language {
      query                     = "max by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"} - pubsub_googleapis_com:subscription_num_undelivered_messages{monitored_resource=\"pubsub_subscription\",subscription_id=~\"${local.subscriptions}\"} offset 5m) > 0"
      duration                  = "1800s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastBacklogGrowsOnOnGoogleCloud"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The backlog of a subscription has been growing for 30 minutes.\n\nWhat to do: ${var.runbook_url}#backlog-grows"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "delivery_paused" {
  project               = var.project
  display_name          = "HoldfastDeliveryPaused"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastDeliveryPaused"
    condition_prometheus_query_language {
      query                     = "max by (subscription) (holdfast_broker_paused{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}) > 0"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastDeliveryPaused"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Delivery to a subscription has paused, because it failed in a storm.\n\nWhat to do: ${var.runbook_url}#delivery-paused"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "push_endpoint_fails" {
  project               = var.project
  display_name          = "HoldfastPushEndpointFails"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastPushEndpointFails"
    condition_prometheus_query_language {
      query                     = "sum by (subscription) (increase(holdfast_push_attempts_total{result!=\"acknowledged\",subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[5m])) / (sum by (subscription) (increase(holdfast_push_attempts_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[5m])) >= 5) > 0.5"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastPushEndpointFails"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 50 % of the push requests of a subscription have failed for 10 minutes.\n\nWhat to do: ${var.runbook_url}#push-endpoint-fails"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "push_dropped" {
  project               = var.project
  display_name          = "HoldfastPushDropped"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastPushDropped"
    condition_prometheus_query_language {
      query                     = "sum by (subscription) (holdfast_push_dropped_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} unless holdfast_push_dropped_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"} offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(holdfast_push_dropped_total{subscription=~\"projects/[^/]+/subscriptions/(?:${local.subscriptions})\"}[5m])) > 0"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastPushDropped"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Messages of a subscription were given up for good, as broker.push.drop_after_attempts asks.\n\nWhat to do: ${var.runbook_url}#push-dropped"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "store_errors" {
  project               = var.project
  display_name          = "HoldfastStoreErrors"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastStoreErrors"
    condition_prometheus_query_language {
      query                     = "sum (holdfast_consumer_store_errors_total{kind=\"transient\"} unless holdfast_consumer_store_errors_total{kind=\"transient\"} offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(holdfast_consumer_store_errors_total{kind=\"transient\"}[5m])) / 5 >= 5"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastStoreErrors"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The store has been too busy or away 5 times a minute or more, for 10 minutes.\n\nWhat to do: ${var.runbook_url}#store-errors"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "store_errors_high" {
  project               = var.project
  display_name          = "HoldfastStoreErrorsHigh"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastStoreErrorsHigh"
    condition_prometheus_query_language {
      query                     = "sum (holdfast_consumer_store_errors_total{kind=\"transient\"} unless holdfast_consumer_store_errors_total{kind=\"transient\"} offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(holdfast_consumer_store_errors_total{kind=\"transient\"}[5m])) / 5 >= 20"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastStoreErrorsHigh"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The store has been too busy or away 20 times a minute or more, for 10 minutes.\n\nWhat to do: ${var.runbook_url}#store-errors"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "store_permission" {
  project               = var.project
  display_name          = "HoldfastStorePermission"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = lookup(var.notification_channels, "critical", [])

  conditions {
    display_name = "HoldfastStorePermission"
    condition_prometheus_query_language {
      query                     = "sum (holdfast_consumer_store_errors_total{kind=\"permission\"} unless holdfast_consumer_store_errors_total{kind=\"permission\"} offset 5m and on (job, instance) holdfast_start_time_seconds offset 5m or increase(holdfast_consumer_store_errors_total{kind=\"permission\"}[5m])) > 0"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastStorePermission"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The store refuses the consumer for want of rights: it will not mend itself.\n\nWhat to do: ${var.runbook_url}#store-permission"
  }

  user_labels = {
    severity = "critical"
  }
}

resource "google_monitoring_alert_policy" "stale_spike" {
  project               = var.project
  display_name          = "HoldfastStaleSpike"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastStaleSpike"
    condition_prometheus_query_language {
      query                     = "sum by (topic) (increase(holdfast_consumer_outcomes_total{outcome=\"stale_ignored\"}[5m])) / (sum by (topic) (increase(holdfast_consumer_outcomes_total[5m])) >= 20) > 0.1"
      duration                  = "600s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastStaleSpike"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More than 10 % of the messages of a topic have come too late to count, for 10 minutes.\n\nWhat to do: ${var.runbook_url}#stale-spike"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "notifications_refused" {
  project               = var.project
  display_name          = "HoldfastNotificationsRefused"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastNotificationsRefused"
    condition_prometheus_query_language {
      query                     = "sum by (receiver) (holdfast_alerts_notifications_total{result=\"refused\"} unless holdfast_alerts_notifications_total{result=\"refused\"} offset 15m and on (job, instance) holdfast_start_time_seconds offset 15m or increase(holdfast_alerts_notifications_total{result=\"refused\"}[15m])) > 0"
      duration                  = "0s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastNotificationsRefused"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "A receiver refuses notifications: nobody hears of alerts there.\n\nWhat to do: ${var.runbook_url}#notifications-refused"
  }

  user_labels = {
    severity = "warning"
  }
}

resource "google_monitoring_alert_policy" "notifications_wait" {
  project               = var.project
  display_name          = "HoldfastNotificationsWait"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = lookup(var.notification_channels, "warning", [])

  conditions {
    display_name = "HoldfastNotificationsWait"
    condition_prometheus_query_language {
      query                     = "max by (receiver) (holdfast_alerts_notifications_waiting) > 0"
      duration                  = "900s"
      evaluation_interval       = "30s"
      rule_group                = "holdfast"
      alert_rule                = "HoldfastNotificationsWait"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "A receiver could not be told of alerts for 15 minutes.\n\nWhat to do: ${var.runbook_url}#notifications-wait"
  }

  user_labels = {
    severity = "warning"
  }
}
