#include "tools/tessera/EncoderOptions.h"
#include "tools/tessera/Note.h"
#include <CLI/CLI.hpp>

using namespace tessera;

void EncoderArguments::finish(const std::string &command) {
  constexpr int64_t kBatch = 8;
  programs.decoder.command = command;
  programs.decoder.batch = batch.value_or(kBatch);
  programs.decoder.cacheBytes = cacheGib << 30;
}

StatusOr<ModelSource> EncoderArguments::find() const {
  auto source = findModel(place);
  if (!source.ok())
    return source.status();
  if (!*source)
    return Status::error("'{}' is not a model directory: it has no config.json",
                         place);
  if ((*source)->packaged && batch)
    return Status::error("'{}' is compiled already: set --batch when compiling "
                         "it (tessera compile --set inference.batch=N)",
                         place);
  return std::move(**source);
}

StatusOr<GenerateOptions>
EncoderArguments::runOptions(TemporaryFile &file) const {
  if (llvm::Error error = file.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = file.name();
  options.device = programs.decoder.device;
  options.threads = threads;
  return options;
}

void EncoderArguments::say(std::string_view line) const {
  if (!quiet)
    note(line);
}

void tessera::addEncoderOptions(CLI::App &command,
                                EncoderArguments &arguments) {
  DecoderSettings &decoder = arguments.programs.decoder;
  command
      .add_option("--recipe", arguments.programs.recipe,
                  "recipe.yaml of the inference programs")
      ->type_name("FILE");
  command
      .add_option("--set", arguments.programs.set,
                  "override a key of the recipe, such as "
                  "inference.context=1024 or precision.compute=bf16; "
                  "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--batch", arguments.batch,
                  "sequences per batch (default: 8)")
      ->check(CLI::Range(1, 4096));
  addCacheOptions(command, decoder.cache, arguments.cacheGib);
  command
      .add_option("--device", decoder.device,
                  "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command.add_option("--threads", arguments.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command.add_flag("--quiet", arguments.quiet,
                   "do not print settings and speed");
}
