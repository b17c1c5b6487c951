// Where a corpus comes from. An input is
//   a folder: every .txt and .jsonl file below it, in the order of their paths;
//   a file named .jsonl: one document a line, {"text": "..."}, other keys are
//     not looked at and empty lines passed over;
//   any other file: one document.
// Empty documents are left out.
#pragma once
#include "runtime/support/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera::tokenizer {

using DocumentSink = std::function<Status(std::string document)>;

/// An error if one of them is not there: for those that work long before they
/// come to it, or remove something.
Status checkInputs(const std::vector<std::string> &inputs);

/// Hands every document of `inputs` to `sink`, in order; stops at the first
/// error of either. Refuses inputs that hold no document at all, and before the
/// first document those that are not there.
Status forEachDocument(const std::vector<std::string> &inputs,
                       const DocumentSink &sink);

} // namespace tessera::tokenizer
