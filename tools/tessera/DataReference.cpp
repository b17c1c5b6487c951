// tessera data reference: log-probabilities of packed documents by a model.
#include "compiler/api/OpenedModel.h"
#include "runtime/data/PackedIndex.h"
#include "runtime/generate/ReferenceScores.h"
#include "runtime/infer/DecodePrograms.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

namespace tessera {

namespace {
struct ReferenceArguments {
  std::string dataset;
  ModelChoice model;
  int64_t batch = 64;
  uint64_t cacheGib = kCacheGib;
};
} // namespace

static void note(std::string_view line) {
  fmt::print(stderr, "tessera: {}\n", line);
}

// A decode step takes as many tokens as a batch has, and a document at most as
// many as a row. Runs have a recipe of their own.
static void prepare(ReferenceArguments &arguments, const PackedIndex &index,
                    bool isRun) {
  DecoderSettings &decoder = arguments.model.decoder;
  decoder.command = "data reference";
  decoder.batch = arguments.batch;
  decoder.cacheBytes = arguments.cacheGib << 30;
  if (!isRun)
    arguments.model.set.insert(
        arguments.model.set.begin(),
        fmt::format("inference.context={}", index.sequence));
}

static Status scoreWith(ReferenceArguments &arguments) {
  auto index = readPackedIndex(arguments.dataset);
  if (!index.ok())
    return index.status();
  auto source = findModel(arguments.model.place);
  if (!source.ok())
    return source.status();
  if (*source && (*source)->packaged)
    return Status::error("'{}' is compiled already, for other batches; give a "
                         "run or a model directory",
                         arguments.model.place);
  prepare(arguments, *index, /*isRun=*/!source->has_value());
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(opened.read(arguments.model, source.take()));
  if (opened.tokenizer->hash() != index->tokenizerHash)
    return Status::error("'{}' was made with another tokenizer than that of "
                         "'{}'; give a model with the dataset's tokenizer",
                         arguments.dataset, arguments.model.place);
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/false, note));
  auto programs = DecodePrograms::create(opened.model->get());
  if (!programs.ok())
    return programs.status();
  const auto begin = std::chrono::steady_clock::now();
  TESSERA_RETURN_IF_ERROR(scoreReference(
      arguments.dataset, **programs, [&](const ReferenceProgress &progress) {
        if (progress.documents < progress.ofDocuments)
          note(fmt::format("{} of {} documents", progress.documents,
                           progress.ofDocuments));
      }));
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  fmt::print("{}: log-probabilities of {} tokens in {} documents by {}, "
             "{:.1f} s\n",
             arguments.dataset, index->tokens, index->documents, opened.source,
             took.count());
  return Status::success();
}

void addDataReference(CLI::App &data, Invocation &invocation) {
  auto arguments = std::make_shared<ReferenceArguments>();
  CLI::App *command = data.add_subcommand(
      "reference", "Store log-probabilities of a packed dataset's tokens by a "
                   "reference model, for DPO and KTO");
  command
      ->add_option("DATASET", arguments->dataset,
                   "directory that tessera data chat made")
      ->required();
  command
      ->add_option("--model", arguments->model.place,
                   "run or model directory: usually what training begins with")
      ->required();
  command
      ->add_option("--set", arguments->model.set,
                   "override a key of the recipe of inference programs, such "
                   "as precision.compute=bf16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--batch", arguments->batch, "tokens of a decode step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  addCacheOptions(*command, arguments->model.decoder.cache,
                  arguments->cacheGib);
  command
      ->add_option("--device", arguments->model.decoder.device,
                   "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command
      ->add_option("--threads", arguments->model.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    if (Status status = scoreWith(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}

} // namespace tessera
