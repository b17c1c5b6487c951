// What decodes the model of a run or of a directory: compiled for `tessera
// generate`, `tessera chat` and `tessera serve`.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/generate/Generate.h"
#include "tools/tessera/CacheOptions.h"
#include "llvm/Support/Error.h"

namespace tessera {

/// A file in memory that has a name for this process only: it goes with the
/// process, however that ends.
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

/// What of a decoding program is not the model's.
struct DecoderSettings {
  std::string device = "cpu";
  /// Sequences that decode together, and pages of the cache (0: enough for
  /// all); where nothing is said, the recipe's.
  std::optional<int64_t> batch, pages;
  /// Matrices of a directory's bf16 packed (inference.layout), where the
  /// program is one for CPUs.
  bool packed = false;
  bool calibrates = false;  ///< what linear layers read, instead of decoding
  std::string cache = "on"; ///< as of `tessera compile --cache`
  uint64_t cacheBytes = kCacheGib << 30; ///< that it may take
  std::string command = "generate";      ///< of tessera, to make it again
  /// A line for people, such as that a compilation begins; may be empty.
  std::function<void(std::string_view)> note = {};
};

/// Compiles into a file of its own; the cache keeps it for the next time.
llvm::Error compileDecoder(const RunPath &place,
                           const DecoderSettings &settings,
                           const std::string &output);

/// What holds of a model directory's programs where nobody says anything:
/// bf16 for weights that are kept so, else f32, and, in programs for CPUs
/// alone, matrices packed.
std::vector<std::string> modelDefaults(const models::ModelSpec &spec,
                                       bool precision, bool packed);

/// The same for a Hugging Face directory, of which `spec` was read, by its
/// defaults unless `recipe` (a file, or empty) or `set`
/// ("inference.context=512") say otherwise.
llvm::Error compileModelDecoder(const std::string &directory,
                                const models::ModelSpec &spec,
                                const DecoderSettings &settings,
                                const std::string &recipe,
                                const std::vector<std::string> &set,
                                const std::string &output);

} // namespace tessera
