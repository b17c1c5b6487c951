// Python's methods of values.
#pragma once
#include "runtime/infer/chat/Value.h"

namespace tessera::chat {

/// Methods that would change their object are not included: as in Jinja's
/// immutable sandbox.
bool isMethod(const Value &value, const std::string &name);

} // namespace tessera::chat
