// A model's own chat template (runtime/infer/chat), for the server.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/serve/Chat.h"
#include "runtime/support/ModelFiles.h"

#include <memory>
#include <string>

namespace tessera::serve {

/// The template of a model, whose tokenizer must outlive it. Without one,
/// returns a renderer that rejects every chat, and a `note` that says so. An
/// invalid template is an error.
StatusOr<std::unique_ptr<ChatRenderer>>
loadModelChat(const ModelFiles &files, const tokenizer::Tokenizer &tokenizer,
              std::string &note);

/// The same for a template's source; `where` prefixes errors.
StatusOr<std::unique_ptr<ChatRenderer>>
parseModelChat(std::string_view source, std::string where,
               const tokenizer::Tokenizer &tokenizer);

} // namespace tessera::serve
