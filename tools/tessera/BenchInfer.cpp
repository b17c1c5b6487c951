// The options of `tessera bench infer`.
#include "bench/infer/BenchInfer.h"
#include "hardware/Targets.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/MeshOptions.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <memory>

using namespace tessera;

static void
addMeasureOptions(CLI::App *command,
                  const std::shared_ptr<BenchInferSettings> &settings) {
  command
      ->add_option("DIR|FILE", settings->place,
                   "model directory (Hugging Face), name of a model in the "
                   "Hugging Face cache, GGUF file, or packaged model (tessera "
                   "compile DIR --mode infer); with --random, config.json is "
                   "enough")
      ->required();
  command
      ->add_option("--pp", settings->bench.prompt,
                   "tokens of the prompt; 0: skip this test")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--tg", settings->bench.generate,
                   "tokens to decode for a sequence; 0: skip this test")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--batch", settings->bench.batch,
                   "sequences that decode together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--repeat", settings->bench.repeat,
                   "repetitions of each test, after one warm-up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--threads", settings->threads,
                   "0: all processors; on a mesh, this rank's part of them")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      ->add_option("--target", settings->target,
                   fmt::format("{} (default: the best supported here)",
                               fmt::join(cpuTargetNames(), ", ")))
      ->type_name("NAME");
}

static void
addProgramOptions(CLI::App *command,
                  const std::shared_ptr<BenchInferSettings> &settings) {
  command->add_flag("--random", settings->random,
                    "random weights, drawn by the model's initializers");
  command->add_option("--seed", settings->seed, "seed of --random")
      ->capture_default_str();
  command
      ->add_option("--recipe", settings->recipe,
                   "recipe.yaml of the inference programs")
      ->type_name("FILE");
  command
      ->add_option("--set", settings->set,
                   "override a key of the recipe, such as inference.chunk=256; "
                   "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(*command, settings->set);
  addKvOption(*command, settings->set);
}

void tessera::addBenchInfer(CLI::App &bench, Invocation &invocation) {
  auto settings = std::make_shared<BenchInferSettings>();
  CLI::App *command = bench.add_subcommand(
      "infer",
      "Measure prefill and decode on this machine's CPUs, in the format of "
      "llama-bench: against their peak FLOP/s and memory bandwidth, or on a "
      "mesh with the share of collectives");
  addMeasureOptions(command, settings);
  addProgramOptions(command, settings);
  auto cacheGib = std::make_shared<uint64_t>(kCacheGib);
  addCacheOptions(*command, settings->cache, *cacheGib);
  auto mesh = std::make_shared<MeshSettings>();
  addMeshOptions(*command, *mesh);
  command->add_flag("--json", settings->json, "print one JSON object per line");
  command->add_flag("--profile", settings->profile,
                    "also print the time of each step of the programs, of rank "
                    "0, summed over repetitions, to stderr");
  command->callback([=, &invocation] {
    settings->cacheBytes = *cacheGib << 30;
    settings->mesh = mesh->mesh;
    runOnRanks(*mesh, invocation, [&](InferenceRanks *ranks) {
      return benchInfer(*settings, ranks);
    });
  });
}
