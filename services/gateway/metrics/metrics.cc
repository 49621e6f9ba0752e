#include "services/gateway/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

namespace strata::gateway {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                              2.5,   5,    10,    30,   60,  120,  300, 900};
const Histogram::BucketBoundaries kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04,
                                                   0.08,  0.15,   0.3,   0.6,  1.2,  5};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;

  Family<Counter>& Counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Counter& OneCounter(const char* name, const char* help) { return Counters(name, help).Add({}); }
  Gauge& OneGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  Histogram& OneHistogram(const char* name, const char* help,
                          const Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }

  Family<Counter>& requests = Counters("strata:requests_total", "Requests by route and status");
  Family<Counter>& finished = Counters("strata:request_success_total", "Answers by finish reason");
  Family<Counter>& rejected =
      Counters("strata:rejected_total", "Requests refused before generation, by reason");
  Counter& connections_refused =
      OneCounter("strata:connections_refused_total", "Connections over the cap");
  Counter& resumed =
      OneCounter("strata:resumed_total", "Times an answer went on after compute failed");
  Counter& prompt_tokens =
      OneCounter("strata:prompt_tokens_total", "Prompt tokens, cached included");
  Counter& cached_tokens =
      OneCounter("strata:cached_tokens_total", "Prompt tokens taken from stored state");
  Counter& generated_tokens = OneCounter("strata:generation_tokens_total", "Generated tokens");
  Histogram& request_seconds = OneHistogram("strata:e2e_request_latency_seconds",
                                            "Whole HTTP request, generating routes", kSeconds);
  Histogram& queue_seconds =
      OneHistogram("strata:request_queue_time_seconds", "Wait for a sequence of compute", kSeconds);
  Histogram& first_token_seconds =
      OneHistogram("strata:time_to_first_token_seconds", "From the start of generation", kSeconds);
  Histogram& between_tokens_seconds =
      OneHistogram("strata:inter_token_latency_seconds", "Between two tokens", kTokenSeconds);
  Gauge& running = OneGauge("strata:requests_running", "Sequences that generate");
  Gauge& waiting = OneGauge("strata:requests_waiting", "Requests in the queue");
  Gauge& connections = OneGauge("strata:connections", "Open client connections");

  Counter& l_prompt_tokens =
      OneCounter("llamacpp:prompt_tokens_total", "Prompt tokens that were read");
  Counter& l_prompt_seconds =
      OneCounter("llamacpp:prompt_seconds_total", "Time spent reading them");
  Counter& l_tokens = OneCounter("llamacpp:tokens_predicted_total", "Generated tokens");
  Counter& l_seconds =
      OneCounter("llamacpp:tokens_predicted_seconds_total", "Time spent generating them");
  Gauge& l_prompt_rate =
      OneGauge("llamacpp:prompt_tokens_seconds", "Mean prompt tokens per second");
  Gauge& l_rate = OneGauge("llamacpp:predicted_tokens_seconds", "Mean generated tokens per second");
  Gauge& l_processing = OneGauge("llamacpp:requests_processing", "Requests that generate");
  Gauge& l_deferred = OneGauge("llamacpp:requests_deferred", "Requests in the queue");

  // Figures of the other daemons, as they last reported them.
  Family<Gauge>& daemon_up =
      prometheus::BuildGauge().Name("strata:daemon_up").Help("1 if it answers").Register(registry);
  Gauge& kv_pages_used = OneGauge("strata:kv_pages_used", "K/V pages in use");
  Gauge& kv_pages = OneGauge("strata:kv_pages", "K/V pages");
  Gauge& kv_usage = OneGauge("strata:kv_cache_usage_ratio", "K/V pages in use / all");
  Gauge& expert_hits = OneGauge("strata:expert_hits", "Experts found in memory, since start");
  Gauge& expert_misses = OneGauge("strata:expert_misses", "Experts waited for, since start");
  Gauge& expert_wait = OneGauge("strata:expert_wait_seconds", "Waited for experts, since start");
  Gauge& expert_bytes = OneGauge("strata:expert_bytes_read", "Bytes read from the drive");
  Gauge& expert_resident = OneGauge("strata:experts_resident", "Experts in the arena");
  Gauge& expert_loaded = OneGauge("strata:experts_load_ratio", "Background load, 1 = done");
  Gauge& store_blocks = OneGauge("strata:kvstore_blocks", "Stored state blocks");
  Gauge& store_bytes = OneGauge("strata:kvstore_bytes", "Bytes of stored state");
  Gauge& store_hits = OneGauge("strata:kvstore_plan_hits", "Prompts that found stored state");
  Gauge& store_plans = OneGauge("strata:kvstore_plans", "Prompts that were looked up");
  Gauge& store_restored = OneGauge("strata:kvstore_restored_tokens", "Tokens restored");
  Gauge& store_degraded = OneGauge("strata:kvstore_degraded", "1 if nothing new can be stored");
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::Answered(std::string_view route, int status, double seconds) {
  impl_->requests
      .Add({{"route", route.empty() ? std::string("none") : std::string(route)},
            {"status", std::to_string(status)}})
      .Increment();
  if (route.find("completions") != std::string_view::npos) impl_->request_seconds.Observe(seconds);
}

void Metrics::ConnectionRefused() { impl_->connections_refused.Increment(); }

void Metrics::Finished(std::string_view reason) {
  impl_->finished.Add({{"finished_reason", std::string(reason)}}).Increment();
}

void Metrics::Rejected(std::string_view reason) {
  impl_->rejected.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::Resumed(uint32_t restarts) { impl_->resumed.Increment(restarts); }
void Metrics::QueueTime(double seconds) { impl_->queue_seconds.Observe(seconds); }
void Metrics::FirstToken(double seconds) { impl_->first_token_seconds.Observe(seconds); }

void Metrics::BetweenTokens(double seconds, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i) impl_->between_tokens_seconds.Observe(seconds / tokens);
}

void Metrics::Prompt(uint32_t tokens, uint32_t cached, double seconds) {
  impl_->prompt_tokens.Increment(tokens);
  impl_->cached_tokens.Increment(cached);
  impl_->l_prompt_tokens.Increment(tokens - cached);
  impl_->l_prompt_seconds.Increment(seconds);
}

void Metrics::Generated(uint32_t tokens, double seconds) {
  impl_->generated_tokens.Increment(tokens);
  impl_->l_tokens.Increment(tokens);
  impl_->l_seconds.Increment(seconds);
}

std::string Metrics::Text(const Gauges& gauges, const EngineStatus& engine) {
  Impl& m = *impl_;
  const auto rate = [](const Counter& count, const Counter& seconds) {
    return seconds.Value() > 0 ? count.Value() / seconds.Value() : 0;
  };
  m.running.Set(gauges.running);
  m.waiting.Set(gauges.waiting);
  m.connections.Set(gauges.connections);
  m.l_processing.Set(gauges.running);
  m.l_deferred.Set(gauges.waiting);
  m.l_prompt_rate.Set(rate(m.l_prompt_tokens, m.l_prompt_seconds));
  m.l_rate.Set(rate(m.l_tokens, m.l_seconds));
  m.daemon_up.Add({{"daemon", "compute"}}).Set(engine.has_compute);
  m.daemon_up.Add({{"daemon", "kvstore"}}).Set(engine.has_kvstore);
  m.daemon_up.Add({{"daemon", "expertstore"}}).Set(engine.has_expertstore);
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  if (engine.has_compute) {
    const v1::ComputeStatusResponse& c = engine.compute;
    m.kv_pages.Set(number(c.kv_pages_total()));
    m.kv_pages_used.Set(number(c.kv_pages_used()));
    m.kv_usage.Set(
        c.kv_pages_total() == 0 ? 0 : number(c.kv_pages_used()) / number(c.kv_pages_total()));
    m.expert_hits.Set(number(c.expert_hits()));
    m.expert_misses.Set(number(c.expert_misses()));
    m.expert_wait.Set(number(c.expert_wait_us()) * 1e-6);
  }
  if (engine.has_expertstore) {
    m.expert_bytes.Set(number(engine.expertstore.bytes_read()));
    m.expert_resident.Set(number(engine.expertstore.resident()));
    m.expert_loaded.Set(engine.expertstore.load_fraction());
  }
  if (engine.has_kvstore) {
    const v1::KvStoreStatusResponse& k = engine.kvstore;
    m.store_blocks.Set(number(k.blocks()));
    m.store_bytes.Set(number(k.bytes()));
    m.store_hits.Set(number(k.plan_hits()));
    m.store_plans.Set(number(k.plans()));
    m.store_restored.Set(number(k.restored_tokens()));
    m.store_degraded.Set(k.degraded() ? 1 : 0);
  }
  return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace strata::gateway
