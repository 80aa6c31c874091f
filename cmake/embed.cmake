# SPDX-License-Identifier: Apache-2.0
# cmake -DNAME=page_js -DINPUT=page.js -DOUTPUT=page_js.c -P embed.cmake
# writes INPUT as a zero-terminated C array of characters.
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE "${OUTPUT}" "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
