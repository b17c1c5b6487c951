// Directories that other programs read: there whole or not at all.
#pragma once
#include "runtime/data/Safetensors.h"

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

/// An error if `directory` is there already, or cannot be made where it is to
/// be: for commands that work long before they make it.
Status checkNewDirectory(const std::string &directory);

/// Makes `directory`, which must not be there: `fill` writes files into the
/// folder that it is given, which then takes the name; it makes no folders in
/// it. After an error, or SIGINT, SIGTERM or SIGHUP, nothing is left; where
/// such a signal is handled and the process goes on, that is an error, too. One
/// at a time in a process.
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
