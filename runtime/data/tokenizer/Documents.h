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

/// Hands every document of `inputs` to `sink`, in order; stops at the first
/// error of either. Refuses inputs that hold no document at all.
Status forEachDocument(const std::vector<std::string> &inputs,
                       const DocumentSink &sink);

} // namespace tessera::tokenizer
