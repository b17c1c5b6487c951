// Compiles the inference programs of a run or a model directory for `tessera
// generate`, `tessera chat` and `tessera serve`.
#pragma once
#include "compiler/Driver.h"
#include "models/ModelSpec.h"
#include "runtime/generate/Generate.h"
#include "runtime/support/ModelFiles.h"
#include "llvm/Support/Error.h"

namespace tessera {

/// A file in memory, with a name that is valid in this process. It vanishes
/// with the process, even after a crash.
class TemporaryFile {
public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  ~TemporaryFile();
  llvm::Error create();
  std::string name() const;

private:
  int descriptor = -1;
};

/// Settings of inference programs that do not depend on the model.
struct DecoderSettings {
  std::string device = "cpu";
  /// Sequences that decode together, and pages of the KV cache (0: enough for
  /// all). Default: the recipe's.
  std::optional<int64_t> batch, pages;
  /// For CPUs: store bf16 matrices of a directory in the packed layout
  /// (inference.layout).
  bool packed = false;
  bool calibrates = false;  ///< measure inputs of linear layers instead
  std::string mesh = {};    ///< as of `tessera compile --mesh`; empty: none
  std::string cache = "on"; ///< as of `tessera compile --cache`
  /// Size limit of the cache.
  uint64_t cacheBytes = CompileRequest::kMostCacheBytes;
  std::string command = "generate"; ///< for the rebuild command
  /// Receives messages for the user, such as that compilation starts; may be
  /// empty.
  std::function<void(std::string_view)> note = {};
};

/// Sets the model of a request: the directory, or the config.json in memory.
llvm::Error setModel(CompileRequest &request, const ModelFiles &files);

/// Compiles into `output`; the cache keeps the program for the next start.
llvm::Error compileDecoder(const RunPath &place,
                           const DecoderSettings &settings,
                           const std::string &output);

/// Default recipe keys of a model directory: compute in bf16 if its weights are
/// stored in bf16, else in f32; packed matrices if `packed` (programs for CPUs
/// only).
std::vector<std::string> modelDefaults(const models::ModelSpec &spec,
                                       bool precision, bool packed);

/// The same for the config.json in `files`, of which `spec` was read, using its
/// defaults unless `recipe` (a file, or empty) or `set`
/// ("inference.context=512") override them.
llvm::Error compileModelDecoder(const ModelFiles &files,
                                const models::ModelSpec &spec,
                                const DecoderSettings &settings,
                                const std::string &recipe,
                                const std::vector<std::string> &set,
                                const std::string &output);

} // namespace tessera
