#include "runtime/serve/OpenApi.h"

namespace tessera::serve {

// Members of every response; clients must expect more members.
std::string_view openApiSchemas() {
  return R"({
"Content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {
  "type": "object", "required": ["type", "text"], "properties": {
    "type": {"const": "text"}, "text": {"type": "string"}}}}]},
"ToolCalls": {"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["id", "type", "function"],
  "additionalProperties": false, "properties": {
    "id": {"type": "string"}, "type": {"const": "function"},
    "function": {"type": "object", "required": ["name", "arguments"],
      "additionalProperties": false, "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "string", "description": "JSON of an object"}}}}}},
"Messages": {"type": "array", "minItems": 1, "items": {"anyOf": [
  {"type": "object", "required": ["role", "content"], "additionalProperties": false,
    "properties": {
      "role": {"enum": ["system", "developer", "user", "assistant"]},
      "name": {"type": ["string", "null"]},
      "content": {"$ref": "#/components/schemas/Content"}}},
  {"type": "object", "required": ["role", "content", "reasoning_content"],
    "additionalProperties": false, "properties": {
      "role": {"const": "assistant"}, "name": {"type": ["string", "null"]},
      "reasoning_content": {"type": ["string", "null"]},
      "content": {"$ref": "#/components/schemas/Content"}}},
  {"type": "object", "required": ["role", "tool_calls"], "additionalProperties": false,
    "properties": {
      "role": {"const": "assistant"}, "name": {"type": ["string", "null"]},
      "reasoning_content": {"type": ["string", "null"]},
      "content": {"anyOf": [{"$ref": "#/components/schemas/Content"}, {"type": "null"}]},
      "tool_calls": {"$ref": "#/components/schemas/ToolCalls"}}},
  {"type": "object", "required": ["role", "function_call"],
    "additionalProperties": false, "properties": {
      "role": {"const": "assistant"}, "name": {"type": ["string", "null"]},
      "reasoning_content": {"type": ["string", "null"]},
      "content": {"anyOf": [{"$ref": "#/components/schemas/Content"}, {"type": "null"}]},
      "function_call": {"type": "object", "required": ["name", "arguments"],
        "additionalProperties": false, "properties": {
          "name": {"type": "string"},
          "arguments": {"type": "string", "description": "JSON of an object"}}}}},
  {"type": "object", "required": ["role", "name", "content"],
    "additionalProperties": false, "properties": {
      "role": {"const": "function"}, "name": {"type": "string"},
      "content": {"$ref": "#/components/schemas/Content"}}},
  {"type": "object", "required": ["role", "content", "tool_call_id"],
    "additionalProperties": false, "properties": {
      "role": {"const": "tool"}, "name": {"type": ["string", "null"]},
      "tool_call_id": {"type": "string"},
      "content": {"$ref": "#/components/schemas/Content"}}}]}},
"InputContent": {"anyOf": [{"type": "string"}, {"type": "array", "items": {
  "type": "object", "required": ["type", "text"], "properties": {
    "type": {"enum": ["input_text", "output_text"]},
    "text": {"type": "string"}}}}]},
"InputMessages": {"type": "array", "minItems": 1, "items": {"anyOf": [
  {"type": "object", "required": ["role", "content"], "additionalProperties": false,
    "properties": {
      "type": {"enum": ["message", null]}, "id": {"type": ["string", "null"]},
      "status": {"type": ["string", "null"]},
      "role": {"enum": ["system", "developer", "user", "assistant"]},
      "content": {"$ref": "#/components/schemas/InputContent"}}},
  {"type": "object", "required": ["type"], "additionalProperties": false,
    "properties": {
      "type": {"const": "reasoning"}, "id": {}, "status": {},
      "summary": {"type": ["array", "null"]},
      "content": {"anyOf": [{"type": "null"}, {"type": "array", "items": {
        "type": "object", "required": ["type", "text"], "properties": {
          "type": {"const": "reasoning_text"}, "text": {"type": "string"}}}}]}}},
  {"type": "object", "required": ["type", "call_id", "name", "arguments"],
    "additionalProperties": false, "properties": {
      "type": {"const": "function_call"}, "id": {}, "status": {},
      "call_id": {"type": "string"}, "name": {"type": "string"},
      "arguments": {"type": "string", "description": "JSON of an object"}}},
  {"type": "object", "required": ["type", "call_id", "output"],
    "additionalProperties": false, "properties": {
      "type": {"const": "function_call_output"}, "id": {}, "status": {},
      "call_id": {"type": "string"},
      "output": {"$ref": "#/components/schemas/InputContent"}}}]}},
"Usage": {"type": "object",
  "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
  "properties": {"prompt_tokens": {"type": "integer"},
    "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object",
      "properties": {"cached_tokens": {"type": "integer"}}},
    "completion_tokens_details": {"type": "object",
      "properties": {"reasoning_tokens": {"type": "integer"}}}}},
"Completion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "text_completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "items": {"type": "object",
      "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer"}, "text": {"type": "string"},
        "logprobs": {"type": ["object", "null"]},
        "prompt_token_ids": {"type": "array", "items": {"type": "integer"}},
        "token_ids": {"type": "array", "items": {"type": "integer"}},
        "finish_reason": {"enum": ["stop", "length"]}}}}}},
"ChatCompletion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "chat.completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "items": {"type": "object",
      "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer"},
        "message": {"type": "object", "required": ["role", "content"],
          "properties": {"role": {"const": "assistant"},
            "content": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"},
            "tool_calls": {"$ref": "#/components/schemas/ToolCalls"},
            "function_call": {"type": "object",
              "required": ["name", "arguments"]}}},
        "logprobs": {"type": ["object", "null"]},
        "prompt_token_ids": {"type": "array", "items": {"type": "integer"}},
        "token_ids": {"type": "array", "items": {"type": "integer"}},
        "finish_reason":
          {"enum": ["stop", "length", "tool_calls", "function_call"]}}}}}},
"Metadata": {"type": "object", "maxProperties": 16,
  "propertyNames": {"maxLength": 64},
  "additionalProperties": {"type": "string", "maxLength": 512}},
"MetadataRequest": {"type": "object", "required": ["metadata"],
  "additionalProperties": false, "properties": {"metadata": {"anyOf": [
    {"$ref": "#/components/schemas/Metadata"}, {"type": "null"}]}}},
"StoredChatCompletion": {"allOf": [
  {"$ref": "#/components/schemas/ChatCompletion"},
  {"type": "object", "required": ["metadata"], "properties":
    {"metadata": {"$ref": "#/components/schemas/Metadata"}}}]},
"Page": {"type": "object",
  "required": ["object", "data", "first_id", "last_id", "has_more"],
  "properties": {"object": {"const": "list"}, "has_more": {"type": "boolean"},
    "first_id": {"type": ["string", "null"]},
    "last_id": {"type": ["string", "null"]}}},
"ChatCompletions": {"allOf": [{"$ref": "#/components/schemas/Page"},
  {"type": "object", "properties": {"data": {"type": "array", "maxItems": 100,
    "items": {"$ref": "#/components/schemas/StoredChatCompletion"}}}}]},
"StoredMessages": {"allOf": [{"$ref": "#/components/schemas/Page"},
  {"type": "object", "properties": {"data": {"type": "array", "maxItems": 100,
    "items": {"type": "object",
      "required": ["id", "role", "content", "name", "content_parts"]}}}}]},
"InputItems": {"allOf": [{"$ref": "#/components/schemas/Page"},
  {"type": "object", "properties": {"data": {"type": "array", "maxItems": 100,
    "items": {"type": "object", "required": ["id", "type", "status"],
      "properties": {"type": {"enum":
        ["message", "reasoning", "function_call",
          "function_call_output"]}}}}}}]},
"Deleted": {"type": "object", "required": ["id", "object", "deleted"],
  "properties": {"id": {"type": "string"},
    "object": {"enum": ["response", "chat.completion.deleted", "adapter"]},
    "deleted": {"const": true}}},
"Response": {"type": "object",
  "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "response"},
    "created_at": {"type": "integer"}, "model": {"type": "string"},
    "status": {"enum": ["queued", "in_progress", "completed", "incomplete",
      "failed", "cancelled"]},
    "incomplete_details": {"type": ["object", "null"]},
    "output": {"type": "array", "items": {"anyOf": [
      {"type": "object", "required": ["type", "id", "status", "role", "content"],
        "properties": {"type": {"const": "message"}}},
      {"type": "object", "required": ["type", "id", "status", "summary", "content"],
        "properties": {"type": {"const": "reasoning"}}},
      {"type": "object",
        "required": ["type", "id", "status", "call_id", "name", "arguments"],
        "properties": {"type": {"const": "function_call"}}}]}},
    "usage": {"type": ["object", "null"],
      "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
"Tokens": {"type": "array", "minItems": 1,
  "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
"Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {"object": {"const": "list"}, "model": {"type": "string"},
    "data": {"type": "array", "items": {"type": "object",
      "required": ["object", "index", "embedding"], "properties": {
        "object": {"const": "embedding"}, "index": {"type": "integer"},
        "embedding": {"anyOf": [{"type": "string"},
          {"type": "array", "items": {"type": "number"}}]}}}},
    "usage": {"$ref": "#/components/schemas/InputUsage"}}},
"Rerank": {"type": "object", "required": ["id", "model", "results", "usage"],
  "properties": {"id": {"type": "string"}, "model": {"type": "string"},
    "results": {"type": "array", "items": {"type": "object",
      "required": ["index", "relevance_score"], "properties": {
        "index": {"type": "integer"}, "relevance_score": {"type": "number"},
        "document": {"type": "object", "required": ["text"],
          "properties": {"text": {"type": "string"}}}}}},
    "usage": {"$ref": "#/components/schemas/InputUsage"}}},
"Score": {"type": "object", "required": ["id", "object", "created", "model", "data", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
    "model": {"type": "string"},
    "data": {"type": "array", "items": {"type": "object",
      "required": ["index", "object", "score"], "properties": {
        "index": {"type": "integer"}, "object": {"const": "score"},
        "score": {"type": "number"}}}},
    "usage": {"$ref": "#/components/schemas/InputUsage"}}},
"InputUsage": {"type": "object", "required": ["prompt_tokens", "total_tokens"],
  "properties": {"prompt_tokens": {"type": "integer"},
    "total_tokens": {"type": "integer"}}},
"Tokenization": {"type": "object",
  "required": ["count", "max_model_len", "tokens", "token_strs"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
    "tokens": {"type": "array", "items": {"type": "integer"}},
    "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
"Detokenization": {"type": "object", "required": ["prompt"],
  "properties": {"prompt": {"type": "string"}}},
"CacheControl": {"type": "object", "required": ["type"],
  "additionalProperties": {"type": "null"}, "properties": {
    "type": {"const": "ephemeral"}, "ttl": {"enum": ["5m", "1h", null]}}},
"TextBlock": {"type": "object", "required": ["type", "text"],
  "additionalProperties": {"type": "null"}, "properties": {
    "type": {"const": "text"}, "text": {"type": "string"},
    "cache_control": {"anyOf": [{"type": "null"},
      {"$ref": "#/components/schemas/CacheControl"}]}}},
"TextBlocks": {"anyOf": [{"type": "string"}, {"type": "array",
  "items": {"$ref": "#/components/schemas/TextBlock"}}]},
"Turns": {"type": "array", "minItems": 1,
  "description": "The last turn is the user's", "items": {"anyOf": [
  {"type": "object", "required": ["role", "content"],
    "additionalProperties": {"type": "null"}, "properties": {
      "role": {"const": "user"}, "content": {"anyOf": [{"type": "string"},
        {"type": "array", "items": {"anyOf": [
          {"$ref": "#/components/schemas/TextBlock"},
          {"type": "object", "required": ["type", "tool_use_id"],
            "additionalProperties": {"type": "null"}, "properties": {
              "type": {"const": "tool_result"}, "tool_use_id": {"type": "string"},
              "content": {"anyOf": [{"type": "null"},
                {"$ref": "#/components/schemas/TextBlocks"}]},
              "is_error": {"type": ["boolean", "null"]},
              "cache_control": {"anyOf": [{"type": "null"},
                {"$ref": "#/components/schemas/CacheControl"}]}}}]}}]}}},
  {"type": "object", "required": ["role", "content"],
    "additionalProperties": {"type": "null"}, "properties": {
      "role": {"const": "assistant"}, "content": {"anyOf": [{"type": "string"},
        {"type": "array", "items": {"anyOf": [
          {"$ref": "#/components/schemas/TextBlock"},
          {"type": "object", "required": ["type", "thinking"],
            "additionalProperties": {"type": "null"}, "properties": {
              "type": {"const": "thinking"}, "thinking": {"type": "string"},
              "signature": {"type": ["string", "null"]}}},
          {"type": "object", "required": ["type", "id", "name", "input"],
            "additionalProperties": {"type": "null"}, "properties": {
              "type": {"const": "tool_use"}, "id": {"type": "string"},
              "name": {"type": "string"}, "input": {"type": "object"},
              "cache_control": {"anyOf": [{"type": "null"},
                {"$ref": "#/components/schemas/CacheControl"}]}}}]}}]}}}]}},
"Message": {"type": "object",
  "required": ["id", "type", "role", "model", "content", "stop_reason",
    "stop_sequence", "usage"], "properties": {
    "id": {"type": "string"}, "type": {"const": "message"},
    "role": {"const": "assistant"}, "model": {"type": "string"},
    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence",
      "tool_use"]}, "stop_sequence": {"type": ["string", "null"]},
    "content": {"type": "array", "items": {"anyOf": [
      {"type": "object", "required": ["type", "text"],
        "properties": {"type": {"const": "text"}}},
      {"type": "object", "required": ["type", "thinking", "signature"],
        "properties": {"type": {"const": "thinking"}}},
      {"type": "object", "required": ["type", "id", "name", "input"],
        "properties": {"type": {"const": "tool_use"}}}]}},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens",
      "cache_creation_input_tokens", "cache_read_input_tokens"]}}},
"TokenCount": {"type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer"}}},
"MessagesError": {"type": "object", "required": ["type", "error"], "properties": {
  "type": {"const": "error"}, "error": {"type": "object",
    "required": ["type", "message"], "properties": {
      "type": {"type": "string"}, "message": {"type": "string"}}}}},
"Model": {"type": "object", "required": ["id", "object", "created", "owned_by"],
  "properties": {"id": {"type": "string"}, "object": {"const": "model"},
    "created": {"type": "integer"}, "owned_by": {"type": "string"},
    "max_model_len": {"type": "integer"},
    "root": {"type": "string", "description": "of an adapter: its directory"},
    "parent": {"type": "string", "description": "of an adapter: its model"}}},
"LoadAdapterRequest": {"type": "object", "required": ["lora_name", "lora_path"],
  "additionalProperties": false, "properties": {
    "lora_name": {"type": "string", "minLength": 1},
    "lora_path": {"type": "string", "minLength": 1}}},
"UnloadAdapterRequest": {"type": "object", "required": ["lora_name"],
  "additionalProperties": false, "properties": {
    "lora_name": {"type": "string", "minLength": 1}}},
"CreateAdapterRequest": {"type": "object", "required": ["name"],
  "additionalProperties": false, "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 64,
      "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"},
    "seed": {"type": "integer", "minimum": 0, "maximum": 9007199254740991}}},
"AdapterPathRequest": {"type": "object", "required": ["path"],
  "additionalProperties": false, "properties": {
    "path": {"type": "string", "minLength": 1, "maxLength": 64,
      "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
      "description": "a directory in that of --train-directory"}}},
"ForwardBackwardRequest": {"type": "object", "required": ["examples"],
  "additionalProperties": false, "properties": {
    "examples": {"type": "array", "minItems": 1, "items": {"type": "object",
      "required": ["tokens"], "additionalProperties": false, "properties": {
        "tokens": {"$ref": "#/components/schemas/Tokens"},
        "weights": {"type": "array", "items": {"enum": [0, 1]}},
        "logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
        "reference_logprobs": {"type": "array",
          "items": {"type": ["number", "null"]}},
        "advantages": {"type": "array",
          "items": {"type": ["number", "null"]}}}}}}},
"Gradients": {"type": "object", "required": ["loss", "tokens", "terms"],
  "properties": {"loss": {"type": "number"}, "tokens": {"type": "integer"},
    "terms": {"type": "number"}}},
"OptimStepRequest": {"type": "object", "additionalProperties": false,
  "properties": {
    "lr": {"type": "number", "minimum": 0},
    "betas": {"type": "array", "minItems": 2, "maxItems": 2,
      "items": {"type": "number", "minimum": 0, "exclusiveMaximum": 1}},
    "eps": {"type": "number", "exclusiveMinimum": 0},
    "weight_decay": {"type": "number", "minimum": 0},
    "clip": {"type": "number", "minimum": 0},
    "divisor": {"type": "number", "exclusiveMinimum": 0},
    "publish": {"type": "boolean", "default": true}}},
"OptimStep": {"type": "object", "required": ["step", "lr", "grad_norm"],
  "properties": {"step": {"type": "integer"}, "lr": {"type": "number"},
    "grad_norm": {"type": "number"}}},
"TrainedAdapter": {"type": "object", "required": ["name", "step", "batches"],
  "properties": {"name": {"type": "string"}, "step": {"type": "integer"},
    "batches": {"type": "integer"}}},
"TrainedAdapters": {"type": "object", "required": ["object", "data"],
  "properties": {"object": {"const": "list"}, "data": {"type": "array",
    "items": {"$ref": "#/components/schemas/TrainedAdapter"}}}},
"Models": {"type": "object", "required": ["object", "data"],
  "properties": {"object": {"const": "list"}, "data": {"type": "array",
    "items": {"$ref": "#/components/schemas/Model"}}}},
"Health": {"type": "object", "required": ["status"],
  "properties": {"status": {"const": "ok"}}},
"Version": {"type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}},
"Description": {"type": "object", "required": ["openapi", "info", "paths"]},
"Event": {"type": "object", "required": ["data"],
  "description": "One of the events of a stream",
  "properties": {"data": {"type": "string"}, "event": {"type": "string"}}},
"Error": {"type": "object", "required": ["error"], "properties": {"error": {
  "type": "object", "required": ["message", "type", "param", "code"],
  "properties": {"message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}}
})";
}

} // namespace tessera::serve
