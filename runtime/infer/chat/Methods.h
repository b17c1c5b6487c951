// Which of Python's methods values have.
#pragma once
#include "runtime/infer/chat/Value.h"

namespace tessera::chat {

/// Methods that would change their object are none: as in the immutable
/// sandbox.
bool isMethod(const Value &value, const std::string &name);

} // namespace tessera::chat
