// The answer in a generated text, and whether it is the right one.
#pragma once
#include "runtime/eval/TaskFile.h"
#include "runtime/support/Status.h"

#include <optional>
#include <string>
#include <string_view>

namespace tessera::eval {

/// An error if the expression is not valid or not supported (Regex.h).
Status checkPattern(std::string_view pattern);

/// Whether a checked expression matches somewhere in `text`.
bool contains(std::string_view text, std::string_view pattern);

/// What the task's expressions extract: each from the match of the one before
/// it. Nothing if one does not match; all of the text if there are none.
std::optional<std::string> extract(std::string_view text, const Task &task);

/// The text as it is compared: stripped of white space at its ends, in lower
/// case (A to Z alone) and without ASCII punctuation, as the task says.
std::string normalize(std::string text, const Task &task);

} // namespace tessera::eval
