#include "tools/tessera/DataScoring.h"
#include "runtime/infer/DecodePrograms.h"
#include "tools/tessera/Note.h"

#include <CLI/CLI.hpp>
#include <chrono>

namespace tessera {

// A decode step takes as many tokens as a batch has, and a document at most as
// many as a row. Runs have a recipe of their own.
static void prepare(ScoringArguments &arguments, const std::string &command,
                    const PackedIndex &index, bool isRun) {
  DecoderSettings &decoder = arguments.model.decoder;
  decoder.command = command;
  decoder.batch = arguments.batch;
  decoder.cacheBytes = arguments.cacheGib << 30;
  if (!isRun)
    arguments.model.set.insert(
        arguments.model.set.begin(),
        fmt::format("inference.context={}", index.sequence));
}

/// A model that has the dataset's tokenizer.
static Status open(ScoringArguments &arguments, const std::string &command,
                   const PackedIndex &index, OpenedModel &opened) {
  auto source = findModel(arguments.model.place);
  if (!source.ok())
    return source.status();
  if (*source && (*source)->packaged)
    return Status::error("'{}' is compiled already, for other batches; give a "
                         "run or a model directory",
                         arguments.model.place);
  prepare(arguments, command, index, /*isRun=*/!source->has_value());
  TESSERA_RETURN_IF_ERROR(opened.read(arguments.model, source.take()));
  if (opened.tokenizer->hash() != index.tokenizerHash)
    return Status::error("'{}' was made with another tokenizer than that of "
                         "'{}'; give a model with the dataset's tokenizer",
                         arguments.dataset, arguments.model.place);
  return opened.open(/*mayScore=*/false, note);
}

Status scoreDataset(
    ScoringArguments &arguments, const std::string &command,
    const std::string &what,
    const std::function<Status(PagedModel &, const ReportDocuments &)> &score) {
  auto index = readPackedIndex(arguments.dataset);
  if (!index.ok())
    return index.status();
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(open(arguments, command, *index, opened));
  auto programs = DecodePrograms::create(opened.model->get());
  if (!programs.ok())
    return programs.status();
  const auto begin = std::chrono::steady_clock::now();
  TESSERA_RETURN_IF_ERROR(
      score(**programs, [](const DocumentProgress &progress) {
        if (progress.documents < progress.ofDocuments)
          note(fmt::format("{} of {} documents", progress.documents,
                           progress.ofDocuments));
      }));
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  fmt::print("{}: {} of {} tokens in {} documents by {}, {:.1f} s\n",
             arguments.dataset, what, index->tokens, index->documents,
             opened.source, took.count());
  return Status::success();
}

void addScoringOptions(CLI::App &command, ScoringArguments &arguments,
                       const std::string &modelHelp) {
  command
      .add_option("DATASET", arguments.dataset,
                  "directory that tessera data chat made")
      ->required();
  command.add_option("--model", arguments.model.place, modelHelp)->required();
  command
      .add_option("--set", arguments.model.set,
                  "override a key of the recipe of inference programs, such "
                  "as precision.compute=bf16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--batch", arguments.batch, "tokens of a decode step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  addCacheOptions(command, arguments.model.decoder.cache, arguments.cacheGib);
  command
      .add_option("--device", arguments.model.decoder.device,
                  "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command.add_option("--threads", arguments.model.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
}

} // namespace tessera
