#include "bench/infer/InferTable.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace tessera;

std::string InferTable::lastColumn(size_t test) const {
  const bench::InferTest &measured = result.tests[test];
  if (!collectives.empty())
    return fmt::format("{:.1f} % of the programs' time",
                       100 * collectives[test]);
  const std::string limit =
      measured.name.starts_with("pp")
          ? fmt::format("{:.1f} GFLOP/s, {}", measured.limit / 1e9,
                        result.instruction)
          : fmt::format("{:.1f} GB/s read", measured.limit / 1e9);
  return fmt::format("{:.1f} % of {}", 100 * measured.ofLimit, limit);
}

void InferTable::printMarkdown() const {
  const bool onRanks = !collectives.empty();
  const char *ofRank = onRanks ? " of a rank" : "";
  fmt::print(
      "| model | size{} | params | backend | threads{} | test | t/s | {} "
      "|\n| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |\n",
      ofRank, ofRank, onRanks ? "collectives" : "of the limit");
  for (size_t i = 0; i < result.tests.size(); ++i) {
    const bench::InferTest &test = result.tests[i];
    fmt::print(
        "| {} | {:.2f} GiB | {:.2f} B | {}{} | {} | {} | {:.2f} ± {:.2f} "
        "| {} |\n",
        model.name + (model.kept == "int8" ? ", kv int8" : ""),
        double(model.bytes) / double(1 << 30), double(model.parameters) / 1e9,
        model.target, onRanks ? ", " + settings.mesh : "", settings.threads,
        test.name, bench::meanOf(test.rates), bench::deviationOf(test.rates),
        lastColumn(i));
  }
}

void InferTable::printJson() const {
  for (size_t i = 0; i < result.tests.size(); ++i) {
    const bench::InferTest &test = result.tests[i];
    const bool isPrompt = test.name.starts_with("pp");
    const bool onRanks = !collectives.empty();
    nlohmann::ordered_json line{
        {"bench", "infer"},
        {"model", model.name},
        {onRanks ? "rank_model_size" : "model_size", model.bytes},
        {"model_n_params", model.parameters},
        {"type_k", model.kept}, // as llama-bench names them
        {"type_v", model.kept},
        {"backend", model.target},
        {onRanks ? "rank_n_threads" : "n_threads", settings.threads},
        {"n_prompt", isPrompt ? settings.bench.prompt : 0},
        {"n_gen", isPrompt ? 0 : settings.bench.generate},
        {"n_batch_decode", isPrompt ? 0 : settings.bench.batch},
        {"test", test.name},
        {"avg_ts", bench::meanOf(test.rates)},
        {"stddev_ts", bench::deviationOf(test.rates)},
        {"samples_ts", test.rates},
        {"samples_s", test.seconds}};
    if (onRanks) {
      line["mesh"] = settings.mesh;
      line["collectives"] = collectives[i];
    } else {
      line[isPrompt ? "peak_flops" : "read_bandwidth"] = test.limit;
      line["of_limit"] = test.ofLimit;
      line["of_limit_cpu"] = test.ofLimitBusy;
      if (isPrompt)
        line["instruction"] = result.instruction;
    }
    fmt::print("{}\n", line.dump());
  }
}
