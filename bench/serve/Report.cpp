#include "bench/serve/ServeBench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

namespace tessera::bench {
namespace {

struct Metric {
  std::string_view name, title;
  std::optional<Summary> summary;
};

struct Sums {
  int64_t completed = 0, prompt = 0, generated = 0;
  std::vector<Metric> metrics;
};

Sums sumsOf(const LoadResult &result) {
  Sums sums;
  std::vector<double> first, perToken, between, total;
  for (const RequestTimes &each : result.requests) {
    if (!each.error.empty())
      continue;
    ++sums.completed;
    sums.prompt += each.promptTokens;
    sums.generated += each.generatedTokens;
    first.push_back(each.first);
    total.push_back(each.total);
    between.insert(between.end(), each.between.begin(), each.between.end());
    if (each.generatedTokens > 1)
      perToken.push_back((each.total - each.first) /
                         double(each.generatedTokens - 1));
  }
  sums.metrics = {{"ttft", "Time to first token", summarize(first)},
                  {"tpot", "Time per output token", summarize(perToken)},
                  {"itl", "Inter-token latency", summarize(between)},
                  {"e2el", "End-to-end latency", summarize(total)}};
  return sums;
}

std::string printJson(const BenchServeOptions &options,
                      const LoadResult &result, const Sums &sums) {
  nlohmann::ordered_json json = {
      {"endpoint_type", options.chat ? "openai-chat" : "openai"},
      {"model_id", result.model},
      {"num_prompts", options.requests},
      {"max_concurrency", options.concurrency},
      {"duration", result.seconds},
      {"completed", sums.completed},
      {"failed", options.requests - sums.completed},
      {"total_input_tokens", sums.prompt},
      {"total_output_tokens", sums.generated},
      {"request_throughput", double(sums.completed) / result.seconds},
      {"output_throughput", double(sums.generated) / result.seconds},
      {"total_token_throughput",
       double(sums.prompt + sums.generated) / result.seconds}};
  if (options.rate > 0)
    json["request_rate"] = options.rate;
  else
    json["request_rate"] = "inf";
  for (const Metric &metric : sums.metrics)
    if (metric.summary)
      for (const auto &[name, value] :
           {std::pair{"mean", metric.summary->mean},
            std::pair{"median", metric.summary->median},
            std::pair{"std", metric.summary->deviation},
            std::pair{"p95", metric.summary->p95},
            std::pair{"p99", metric.summary->p99}})
        json[fmt::format("{}_{}_ms", name, metric.name)] = value;
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

} // namespace

std::optional<Summary> summarize(std::vector<double> values) {
  if (values.empty())
    return std::nullopt;
  std::ranges::sort(values);
  auto count = double(values.size());
  auto at = [&](double part) {
    double position = part * (count - 1);
    auto low = std::size_t(position),
         high = std::min(low + 1, values.size() - 1);
    return values[low] +
           (position - double(low)) * (values[high] - values[low]);
  };
  double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  return Summary{mean, at(0.5), std::sqrt(squares / count), at(0.95), at(0.99)};
}

std::string printLoad(const BenchServeOptions &options,
                      const LoadResult &result) {
  Sums sums = sumsOf(result);
  if (options.json)
    return printJson(options, result, sums);
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{}: {} of {} requests in {:.2f} s, {} at a time\n",
                 result.model, sums.completed, options.requests, result.seconds,
                 options.concurrency);
  fmt::format_to(to,
                 "{:.2f} requests/s, {:.1f} tokens/s generated, {:.1f} with "
                 "those of prompts\n",
                 double(sums.completed) / result.seconds,
                 double(sums.generated) / result.seconds,
                 double(sums.prompt + sums.generated) / result.seconds);
  fmt::format_to(to, "{:24}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean",
                 "median", "p95", "p99");
  for (const Metric &metric : sums.metrics)
    if (const auto &summary = metric.summary)
      fmt::format_to(to, "{:24}{:10.2f}{:10.2f}{:10.2f}{:10.2f}\n",
                     metric.title, summary->mean, summary->median, summary->p95,
                     summary->p99);
  return out;
}

Status benchServe(const BenchServeOptions &options) {
  auto result = runLoad(options);
  if (!result.ok())
    return result.status();
  std::string text = printLoad(options, *result);
  std::fwrite(text.data(), 1, text.size(), stdout);
  int64_t failed = 0;
  std::string first;
  for (const RequestTimes &each : result->requests)
    if (!each.error.empty() && failed++ == 0)
      first = each.error;
  if (failed > 0)
    return Status::error("{} of {} requests failed, the first with: {}", failed,
                         options.requests, first);
  return Status::success();
}

} // namespace tessera::bench
