// The chat template that a model brings (runtime/infer/chat), for the server.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/serve/Chat.h"
#include "runtime/support/ModelFiles.h"

#include <memory>
#include <string>

namespace tessera::serve {

/// The template of a model, whose tokenizer outlives it. A model without one
/// gives a template that refuses every chat, and `note`, one line that says so;
/// one that cannot be read is an error.
StatusOr<std::unique_ptr<ChatRenderer>>
loadModelChat(const ModelFiles &files, const tokenizer::Tokenizer &tokenizer,
              std::string &note);

/// The same of a template's text; `where` begins errors.
StatusOr<std::unique_ptr<ChatRenderer>>
parseModelChat(std::string_view source, std::string where,
               const tokenizer::Tokenizer &tokenizer);

} // namespace tessera::serve
