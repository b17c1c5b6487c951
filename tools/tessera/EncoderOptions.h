// What the commands have in common that run whole sequences: `tessera embed`,
// `tessera rerank` and `tessera score`.
#pragma once
#include "compiler/api/DecoderProgram.h"
#include "compiler/api/ModelSource.h"
#include "tools/tessera/CacheOptions.h"

namespace tessera {

struct EncoderArguments {
  std::string place; ///< a model directory or packaged model
  ProgramOptions programs;
  std::optional<int64_t> batch; ///< sequences per batch
  unsigned threads = 0;
  uint64_t cacheGib = kCacheGib;
  bool quiet = false;

  /// Completes `programs` for the command of this name.
  void finish(const std::string &command);
  /// The model; an error if it is none, or is packaged and `batch` was given.
  StatusOr<ModelSource> find() const;
  /// How the model runs, with the program in `file`, which this creates.
  StatusOr<GenerateOptions> runOptions(TemporaryFile &file) const;
  /// Prints a line for the user, unless `quiet`.
  void say(std::string_view line) const;
};

/// --recipe, --set, --batch, --cache, --device, --threads, --quiet.
void addEncoderOptions(CLI::App &command, EncoderArguments &arguments);

} // namespace tessera
