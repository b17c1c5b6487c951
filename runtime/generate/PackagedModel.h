// A model in one file, which `tessera compile DIR --mode infer -o FILE` makes
// and `tessera generate`, `chat`, `embed` and `serve` take: programs, weights
// as the programs have them in memory, and the texts that came with them.
//
//   0   an image of the weights (WeightsImage.h); its key is the JSON object
//       {"program": hash, "files": {"config.json": {"offset", "bytes",
//       "hash"}}}
//   …   the files' bytes, hash: XXH3-64 in hex
//   …   the artifact and its footer (AppendedArtifact.h), so that the file is
//       an artifact to whoever asks for no more
#pragma once
#include "runtime/support/ModelFiles.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/WeightsImage.h"

#include <string>

namespace tessera {

/// Bytes of all texts together, at most.
inline constexpr int64_t kMostShippedTextBytes = int64_t(512) << 20;

class PackagedModel {
public:
  /// Whether the file begins as such files do.
  static bool isOne(const std::string &path) { return isImage(path); }
  /// Proves all but the weights, which load() does. An error is one line.
  static StatusOr<PackagedModel> open(const std::string &path);

  const std::string &path() const { return file; }
  const ModelFiles &files() const { return texts; }
  uint64_t weightBytes() const { return head.bytes; }

  /// The texts of a file of these `bytes` whose image has that key; errors go
  /// on after its name.
  static StatusOr<ModelFiles::Texts> readTexts(std::string_view key,
                                               std::string_view bytes);

  /// Fills the parameters of a model that was opened from this file: by
  /// mapping them where they are in memory as the file has them.
  Status load(SessionModel &model) const;

private:
  /// The same by way of copies, for memory that is a device's; `begin`: of the
  /// parameters in the state.
  Status copyTo(hal::Session &session, uint64_t begin) const;
  PackagedModel(std::string path, ImageHead head)
      : file(std::move(path)), head(std::move(head)), texts(file) {}

  std::string file;
  ImageHead head;
  ModelFiles texts;
};

/// What of a tensor is in a chunk of the state.
struct TensorPiece {
  std::string_view name;
  uint64_t inTensor, inChunk, bytes;
};
/// Of the parameters, what bytes [offset, offset + bytes) of the state have.
std::vector<TensorPiece> piecesOf(std::span<const hal::TensorInfo> state,
                                  uint64_t offset, uint64_t bytes);

/// Of what such a file is made.
struct ShippedParts {
  std::string program;    ///< a .tsr file of programs for one device
  std::string checkpoint; ///< whose tensors are just the programs' parameters
  ModelFiles::Texts files;
};

/// Writes the file, whole or not at all. Weights are converted and rounded
/// where the file has them.
Status writePackagedModel(const std::string &path, const ShippedParts &parts);

} // namespace tessera
