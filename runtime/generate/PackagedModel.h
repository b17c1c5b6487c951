// A packaged model: one file with programs, weights as the programs have them
// in memory, and the small files of the model's folder. `tessera compile DIR
// --mode infer -o FILE` writes it; `tessera generate`, `chat`, `embed` and
// `serve` open it.
//
//   0   an image of the weights (WeightsImage.h); its key is the JSON object
//       {"program": hash, "files": {"config.json": {"offset", "bytes",
//       "hash"}}}
//   …   the files' bytes, hash: XXH3-64 in hex
//   …   the artifact and its footer (AppendedArtifact.h), so that the
//       file can also be opened as an artifact
#pragma once
#include "runtime/data/WeightFiles.h"
#include "runtime/support/ModelFiles.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/WeightsImage.h"

#include <string>

namespace tessera {

/// Most bytes of all small files together.
inline constexpr int64_t kMostPackagedTextBytes = int64_t(512) << 20;

class PackagedModel {
public:
  /// Whether the file begins like a packaged model.
  static bool isOne(const std::string &path) { return isImage(path); }
  /// Checks all but the weights, which load() checks. An error is one line.
  static StatusOr<PackagedModel> open(const std::string &path);

  const std::string &path() const { return file; }
  const ModelFiles &files() const { return modelFiles; }
  uint64_t weightBytes() const { return head.bytes; }

  /// The small files in the `bytes` of a file whose image has that key. Errors
  /// continue a sentence that begins with its name.
  static StatusOr<ModelFiles::Contents> readFiles(std::string_view key,
                                                  std::string_view bytes);

  /// Fills the parameters of a model that was opened from this file: by mapping
  /// them where their layout in memory is that of the file.
  Status load(SessionModel &model) const;

private:
  /// The same by copying, for device memory; `begin`: offset of the parameters
  /// in the state.
  Status copyTo(hal::Session &session, uint64_t begin) const;
  PackagedModel(std::string path, ImageHead head)
      : file(std::move(path)), head(std::move(head)), modelFiles(file) {}

  std::string file;
  ImageHead head;
  ModelFiles modelFiles;
};

/// The bytes of a tensor in a chunk of the state.
struct TensorPiece {
  std::string_view name;
  uint64_t inTensor, inChunk, bytes;
};
/// The parameters' bytes in [offset, offset + bytes) of the state.
std::vector<TensorPiece> piecesOf(std::span<const hal::TensorInfo> state,
                                  uint64_t offset, uint64_t bytes);

/// The inputs of a packaged model.
struct PackagedParts {
  std::string program;    ///< a .tsr file of programs for one device
  WeightFiles checkpoint; ///< its tensors are exactly the programs' parameters
  ModelFiles::Contents files;
};

/// Writes the file, complete or not at all. Weights are converted and rounded
/// in the mapped file.
Status writePackagedModel(const std::string &path, const PackagedParts &parts);

} // namespace tessera
