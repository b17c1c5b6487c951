#include "runtime/infer/engine/EngineMetrics.h"
#include "runtime/infer/engine/Request.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

namespace tessera {
namespace {

void printOne(std::string_view name, std::string_view type,
              std::string_view help, double value, std::string &out) {
  fmt::format_to(std::back_inserter(out),
                 "# HELP tessera:{0} {1}\n# TYPE tessera:{0} {2}\n"
                 "tessera:{0} {3}\n",
                 name, help, type, value);
}

} // namespace

std::span<const double> tokenSeconds() {
  static constexpr std::array bounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
      0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0,   10., 20.,  40.};
  return bounds;
}

std::span<const double> requestSeconds() {
  static constexpr std::array bounds = {0.01, 0.05, 0.1, 0.3, 0.5,  0.8,  1.0,
                                        1.5,  2.0,  2.5, 5.0, 10.,  15.,  20.,
                                        30.,  40.,  50., 60., 120., 240., 480.};
  return bounds;
}

void Histogram::add(double value) {
  ++counts[std::ranges::lower_bound(bounds, value) - bounds.begin()];
  sum += value;
}

uint64_t Histogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t(0));
}

void Histogram::print(std::string_view name, std::string_view help,
                      std::string &out) const {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP tessera:{0} {1}\n# TYPE tessera:{0} histogram\n",
                 name, help);
  uint64_t until = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i)
    fmt::format_to(to, "tessera:{}_bucket{{le=\"{}\"}} {}\n", name, bounds[i],
                   until += counts[i]);
  fmt::format_to(to,
                 "tessera:{0}_bucket{{le=\"+Inf\"}} {1}\n"
                 "tessera:{0}_sum {2}\ntessera:{0}_count {1}\n",
                 name, count(), sum);
}

std::string EngineMetrics::print() const {
  std::string out;
  printOne("num_requests_running", "gauge", "Requests that have pages.",
           double(running), out);
  printOne("num_requests_waiting", "gauge", "Requests in the queue.",
           double(waiting), out);
  printOne("kv_cache_usage_perc", "gauge",
           "Fraction of the KV cache's pages in use, 0 to 1.",
           pages ? double(pagesUsed) / double(pages) : 0, out);
  printOne("kv_pages", "gauge", "Pages of the KV cache.", double(pages), out);
  printOne("kv_pages_used", "gauge", "Pages of unfinished requests.",
           double(pagesUsed), out);
  printOne("kv_pages_kept", "gauge", "Unused pages kept in the prefix cache.",
           double(pagesKept), out);
  printOne("prefix_cache_queries_total", "counter",
           "Prompt tokens looked up in the prefix cache.",
           double(prefixQueries), out);
  printOne("prefix_cache_hits_total", "counter",
           "Prompt tokens found in the prefix cache.", double(prefixHits), out);
  printOne("num_preemptions_total", "counter",
           "Preemptions of running requests.", double(preemptions), out);
  printOne("prompt_tokens_total", "counter",
           "Prompt tokens of started requests.", double(promptTokens), out);
  printOne("generation_tokens_total", "counter", "Tokens generated.",
           double(generatedTokens), out);
  printOne("spec_decode_num_draft_tokens_total", "counter",
           "Draft tokens of speculative decoding.", double(draftTokens), out);
  printOne("spec_decode_num_accepted_tokens_total", "counter",
           "Draft tokens that were accepted.", double(acceptedTokens), out);
  printOne("engine_iterations_total", "counter", "Iterations of the engine.",
           double(iterations), out);
  out +=
      "# HELP tessera:request_success_total Requests that ended, by reason.\n"
      "# TYPE tessera:request_success_total counter\n";
  for (std::size_t i = 0; i < finished.size(); ++i)
    fmt::format_to(
        std::back_inserter(out),
        "tessera:request_success_total{{finished_reason=\"{}\"}} {}\n",
        name(FinishReason(i)), finished[i]);
  firstToken.print("time_to_first_token_seconds",
                   "Seconds from arrival to the first token.", out);
  interToken.print("inter_token_latency_seconds",
                   "Seconds from one token of a request to its next.", out);
  endToEnd.print("e2e_request_latency_seconds",
                 "Seconds from arrival to the end.", out);
  queue.print("request_queue_time_seconds",
              "Seconds from arrival to admission.", out);
  prefill.print("request_prefill_time_seconds",
                "Seconds from admission to the first token.", out);
  decode.print("request_decode_time_seconds",
               "Seconds from the first token to the end.", out);
  return out;
}

} // namespace tessera
