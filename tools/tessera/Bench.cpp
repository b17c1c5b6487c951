// tessera bench: speed as a ratio to the peak measured in the same run.
#include "bench/gemm/BenchGemm.h"
#include "bench/train/BenchTrain.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <memory>

using namespace tessera;

static void addTrain(CLI::App &bench, Invocation &invocation) {
  auto options = std::make_shared<BenchTrainOptions>();
  CLI::App *command = bench.add_subcommand(
      "train", "A whole training step against the machine's peak");
  command->add_option("--spec", options->spec, "model")->capture_default_str();
  command->add_option(
      "--recipe", options->recipe,
      "recipe.yaml; batch and precision come from the options below");
  command->add_option("--batch", options->micro, "sequences in a step")
      ->capture_default_str();
  command
      ->add_option("--sequence", options->sequences,
                   "tokens in a sequence; several make several cases")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--precision", options->precisions, "fp32, bf16 or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads)->capture_default_str();
  command->add_option("--steps", options->steps, "counted steps of each case")
      ->capture_default_str();
  command->add_option("--cpu", options->cpuTarget,
                      "take this code object, such as avx2");
  command->add_option(
      "--pytorch", options->python,
      "Python interpreter with torch, to measure the same step with");
  command->add_flag("--profile", options->profile,
                    "print the time of every kernel to stderr");
  command->add_flag("--json", options->json, "one JSON object a case");
  command->callback([=, &invocation] {
    if (llvm::Error error = benchTrain(*options))
      invocation.fail(llvm::toString(std::move(error)).c_str());
  });
}

static void addGemm(CLI::App &bench, Invocation &invocation) {
  auto options = std::make_shared<BenchGemmOptions>();
  CLI::App *command = bench.add_subcommand(
      "gemm", "One contraction against the register-loop peak");
  command->add_option("--m", options->m, "rows")->capture_default_str();
  command->add_option("--n", options->n, "columns")->capture_default_str();
  command->add_option("--k", options->k, "depth")->capture_default_str();
  command
      ->add_option("--trans", options->trans,
                   "nn, nt, tn or tt: t is an operand that is stored turned")
      ->capture_default_str();
  command->add_option("--type", options->types, "f32, bf16 or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads)
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--target", options->target,
                      "such as cpu:avx512; default: all that run here");
  command
      ->add_option("--pairs", options->pairs,
                   "measurements, each with the peak beside it")
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([=, &invocation] {
    if (llvm::Error error = benchGemm(*options))
      invocation.fail(llvm::toString(std::move(error)).c_str());
  });
}

void tessera::addBenchCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *bench = app.add_subcommand(
      "bench",
      "Measure speed, as a ratio to the peak measured in the same run");
  bench->require_subcommand(1);
  addGemm(*bench, invocation);
  addTrain(*bench, invocation);
}
