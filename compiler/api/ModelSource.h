// A model that is not a run: a Hugging Face directory, a GGUF file or a
// packaged model. Shared by decoders and encoders.
#pragma once
#include "compiler/api/DecoderProgram.h"
#include "models/ModelSpec.h"
#include "runtime/data/WeightFiles.h"
#include "runtime/generate/Generate.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct ModelSource {
  std::string name; ///< for messages
  ModelFiles files; ///< of the directory `files.place()`, or of the file
  models::ModelSpec spec;
  /// Of a directory or a GGUF file.
  WeightFiles weights;
  std::string note = {}; ///< how weights are read, for the user; may be empty
  std::optional<PackagedModel> packaged = {};

  bool isGguf() const { return weights.isOtherFormat(); }
  bool isDirectory() const { return !packaged && !isGguf(); }
};

/// Options of a command that configure programs.
struct ProgramOptions {
  DecoderSettings decoder;
  std::string recipe;           ///< a file, or empty
  std::vector<std::string> set; ///< overrides, "inference.context=512"
};

/// The name of a folder for messages, ignoring trailing parts: "run" for
/// "a/run/.".
std::string lastNameOf(const std::string &path);

/// The model at `place`: a directory with config.json, the hub's name of one,
/// a GGUF file, or a packaged model. Nothing if it may be a run. Other files
/// are errors that say what to do with them.
StatusOr<std::optional<ModelSource>> findModel(const std::string &place);

/// An error if options that need compilation are given for a packaged model.
Status checkProgramOptions(const ModelSource &source,
                           const ProgramOptions &programs);

/// Compiles into `options.program` (cached for the next start), loads weights,
/// and reports both to `options.phases`. A packaged model is only loaded.
StatusOr<std::unique_ptr<SessionModel>>
openModel(const ModelSource &source, const ProgramOptions &programs,
          const GenerateOptions &options);

} // namespace tessera
