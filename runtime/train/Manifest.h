// manifest.json of a checkpoint, to and from text.
#pragma once
#include "runtime/train/Checkpoint.h"

namespace tessera {

/// The manifest with its own hash in the key "manifest_xxh3_64".
std::string printManifest(const CheckpointManifest &manifest);

/// Checks the manifest's hash before it believes a word. `where` names the file
/// in errors.
StatusOr<CheckpointManifest> parseManifest(std::string_view text,
                                           const std::string &where);

} // namespace tessera
