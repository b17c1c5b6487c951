// Directories that other programs read: they appear completely or not at all.
#pragma once
#include "runtime/data/Safetensors.h"

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

/// An error if `directory` exists, or cannot be created: for commands that work
/// long before they create it.
Status checkNewDirectory(const std::string &directory);

/// Creates `directory`, which must not exist: `fill` writes files, but no
/// folders, into a temporary folder, which is then renamed. After an error, or
/// a SIGINT, SIGTERM or SIGHUP on any thread, either nothing is left or the
/// directory is complete. If another handler takes such a signal and the
/// process continues, an unfinished directory is an error. One call at a time
/// in a process.
Status
makeNewDirectory(const std::string &directory,
                 const std::function<Status(const std::string &folder)> &fill);

/// A new file with that text, on the disk when this returns.
Status writeNewFile(const std::string &path, std::string_view text);

/// A new safetensors file that transformers loads, on the disk when this
/// returns.
Status writeNewSafetensors(const std::string &path,
                           std::vector<SafetensorsTensor> tensors);

} // namespace tessera
