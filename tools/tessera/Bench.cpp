// tessera bench: speed as a ratio to the peak measured in the same run.
#include "bench/gemm/BenchGemm.h"
#include "bench/serve/ServeBench.h"
#include "bench/train/BenchTrain.h"
#include "hardware/Targets.h"
#include "runtime/bench/KernelBench.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fmt/ranges.h>
#include <memory>

using namespace tessera;

//===--- options shared by the benchmarks -------------------------------===//

// Errors of CLI::PositiveNumber print the largest double in full.
static const CLI::Validator atLeastOne(
    [](std::string &text) {
      int64_t value = 0;
      return CLI::detail::lexical_cast(text, value) && value >= 1
                 ? std::string()
                 : "must be a whole number, at least 1, got " + text;
    },
    "COUNT");

// More threads than any machine has processors are a typing error.
static const CLI::Range threadCounts(1, 1024);

static void addPrecision(CLI::App &command,
                         std::vector<std::string> &precisions) {
  command.add_option("--precision", precisions, "fp32, bf16 or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
}

static void addTarget(CLI::App &command, std::string &target,
                      const char *otherwise) {
  command
      .add_option("--target", target,
                  fmt::format("{} (default: {})",
                              fmt::join(cpuTargetNames(), ", "), otherwise))
      ->type_name("NAME");
}

static void addJson(CLI::App &command, bool &json) {
  command.add_flag("--json", json, "print one JSON object per line");
}

//===--- train ----------------------------------------------------------===//

static void addTrain(CLI::App &bench, Invocation &invocation) {
  auto options = std::make_shared<BenchTrainOptions>();
  CLI::App *command = bench.add_subcommand(
      "train", "Measure a training step against the machine's peak");
  command
      ->add_option("--spec", options->spec,
                   "model (default: models/specs/gpt2-124m of the source tree)")
      ->type_name("SPEC");
  command
      ->add_option(
          "--recipe", options->recipe,
          "recipe.yaml; batch and precision are given by the options below")
      ->type_name("FILE.yaml");
  command->add_option("--batch", options->micro, "sequences per step")
      ->check(atLeastOne)
      ->capture_default_str();
  command
      ->add_option("--sequence", options->sequences,
                   "tokens per sequence; several values: one case each")
      ->delimiter(',')
      ->check(atLeastOne)
      ->capture_default_str();
  addPrecision(*command, options->precisions);
  command->add_option("--threads", options->threads)
      ->check(threadCounts)
      ->capture_default_str();
  command->add_option("--steps", options->steps, "measured steps of each case")
      ->check(atLeastOne)
      ->capture_default_str();
  addTarget(*command, options->target, "the best supported here");
  command
      ->add_option("--pytorch", options->python,
                   "Python interpreter with torch, to measure the same step of "
                   "GPT-2 in PyTorch")
      ->type_name("PROGRAM");
  command->add_flag("--profile", options->profile,
                    "print the time of every kernel to stderr");
  addJson(*command, options->json);
  command->callback([=, &invocation] {
    if (llvm::Error error = benchTrain(*options))
      invocation.fail(llvm::toString(std::move(error)).c_str());
  });
}

//===--- gemm -----------------------------------------------------------===//

static void addGemm(CLI::App &bench, Invocation &invocation) {
  static const CLI::Range sizes(1, 1 << 20);
  auto options = std::make_shared<BenchGemmOptions>();
  CLI::App *command = bench.add_subcommand(
      "gemm", "Measure one matmul against the register-loop peak");
  command->add_option("--m", options->m, "rows")
      ->check(sizes)
      ->capture_default_str();
  command->add_option("--n", options->n, "columns")
      ->check(sizes)
      ->capture_default_str();
  command->add_option("--k", options->k, "depth")
      ->check(sizes)
      ->capture_default_str();
  command
      ->add_option("--trans", options->trans,
                   "for each operand, n or t: stored as is, or transposed")
      ->check(CLI::IsMember({"nn", "nt", "tn", "tt"}))
      ->capture_default_str();
  addPrecision(*command, options->precisions);
  command
      ->add_option("--threads", options->threads,
                   "several values: one measurement each")
      ->delimiter(',')
      ->check(threadCounts)
      ->capture_default_str();
  addTarget(*command, options->target, "all supported here");
  command
      ->add_option("--pairs", options->pairs,
                   "measurements, each paired with one of the peak")
      ->check(atLeastOne)
      ->capture_default_str();
  addJson(*command, options->json);
  command->callback([=, &invocation] {
    if (llvm::Error error = benchGemm(*options))
      invocation.fail(llvm::toString(std::move(error)).c_str());
  });
}

//===--- kernels --------------------------------------------------------===//

// Implemented in the runtime, so that training executables have it as well.
static void addKernels(CLI::App &bench, Invocation &invocation) {
  CLI::App *command = bench.add_subcommand(
      "kernels", "Measure every kernel of a compiled program against the "
                 "roofline; `kernels --help` lists the options");
  command->set_help_flag();
  command->prefix_command();
  command->callback([=, &invocation] {
    std::vector<std::string> words = command->remaining();
    std::vector<const char *> argv = {"tessera bench kernels"};
    for (const std::string &word : words)
      argv.push_back(word.c_str());
    invocation.exitCode =
        bench::benchKernelsMain(static_cast<int>(argv.size()), argv.data(),
                                /*artifact=*/"", argv.front());
  });
}

//===--- serve ----------------------------------------------------------===//

static void addServe(CLI::App &bench, Invocation &invocation) {
  auto options = std::make_shared<bench::BenchServeOptions>();
  CLI::App *command = bench.add_subcommand(
      "serve", "Load-test a server of the OpenAI API: time to first token, "
               "time between tokens, throughput");
  command
      ->add_option("URL", options->url,
                   "address of the server, such as http://127.0.0.1:8000")
      ->required();
  command
      ->add_option("--rate", options->rate,
                   "requests per second, as a Poisson process; 0: all at once")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--num", options->requests, "number of requests")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--concurrency", options->concurrency,
                   "maximum number of concurrent requests")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--words", options->words, "words of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--max-tokens", options->maxTokens,
                   "tokens to generate per request, ignoring end tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag(
      "--chat", options->chat,
      "send requests to /v1/chat/completions instead of /v1/completions");
  command
      ->add_option("--model", options->models,
                   "model name (default: the server's first); repeatable: "
                   "requests take turns, such as among adapters")
      ->allow_extra_args(false);
  command->add_option("--api-key", options->key,
                      "key that the server requires; also TESSERA_API_KEY");
  command
      ->add_option("--seed", options->seed, "seed of prompts and arrival times")
      ->capture_default_str();
  command
      ->add_option("--timeout", options->timeoutSeconds,
                   "seconds after which a request counts as failed")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  addJson(*command, options->json);
  command->callback([=, &invocation] {
    const char *key = std::getenv("TESSERA_API_KEY");
    if (key && options->key.empty())
      options->key = key;
    if (Status status = bench::benchServe(*options); !status.ok())
      invocation.fail(status.message().c_str());
  });
}

void tessera::addBenchCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *bench = app.add_subcommand(
      "bench",
      "Measure speed against the machine's peak, measured in the same run");
  bench->require_subcommand(1);
  addGemm(*bench, invocation);
  addBenchInfer(*bench, invocation);
  addKernels(*bench, invocation);
  addServe(*bench, invocation);
  addTrain(*bench, invocation);
}
