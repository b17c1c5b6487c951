# tessera_embed_headers(VARIABLE OUTPUT FILE...): a C++ file that defines
# `const EmbeddedFile VARIABLE[]` with each file's path from the repository and
# its text, made again whenever one of them changes.
function(tessera_embed_headers variable output)
  set(text "")
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
    file(READ ${CMAKE_SOURCE_DIR}/${file} content)
    string(APPEND text "    {\"${file}\", R\"embedded(${content})embedded\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
"// Made by tessera_embed_headers; do not edit.
const EmbeddedFile ${variable}[] = {
@text@};
")
endfunction()
