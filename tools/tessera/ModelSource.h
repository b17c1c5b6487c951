// A model that is no run of ours: a Hugging Face directory, or the one file
// that `tessera compile` makes of one. What generates and what embeds have in
// common.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/generate/Generate.h"
#include "tools/tessera/DecoderProgram.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct ModelSource {
  std::string name; ///< for people
  ModelFiles files; ///< of the directory `files.place()`, or of the file
  models::ModelSpec spec;
  std::optional<PackagedModel> packaged; ///< nothing: a directory
};

/// What a command says of the programs.
struct ProgramOptions {
  DecoderSettings decoder;
  std::string recipe;           ///< a file, or empty
  std::vector<std::string> set; ///< on top of it, "inference.context=512"
};

/// For people: of a folder, whatever stands behind it, "run" of "a/run/.".
std::string lastNameOf(const std::string &path);

/// The model at `place`: a directory with config.json, the hub's name of one,
/// or a file with weights. Nothing where it may be a run. Files of other kinds
/// are errors that say what to do with them.
StatusOr<std::optional<ModelSource>> findModel(const std::string &place);

/// An error if a model that is compiled is asked for anything that only a
/// compilation gives.
Status checkProgramOptions(const ModelSource &source,
                           const ProgramOptions &programs);

/// Compiles into `options.program` (the cache keeps it for the next time),
/// fills in weights, and tells `options.phases` of both; of a file only the
/// latter.
StatusOr<std::unique_ptr<SessionModel>>
openModel(const ModelSource &source, const ProgramOptions &programs,
          const GenerateOptions &options);

} // namespace tessera
