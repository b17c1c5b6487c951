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
/// it. After an error, or a SIGINT, SIGTERM or SIGHUP on whichever thread,
/// nothing is left, unless the directory has its name already: then it is
/// whole. Where others handle such a signal and the process goes on, what was
/// not named is an error. One at a time in a process.
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
