/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tests/reference/make_properties.py: classes of characters as Hugging Face's tokenizers
 * has them, in the words of PCRE2. Members behind the names are of newer versions of Unicode. */
#include "text/tokenizer/pattern.h"

#include <stddef.h>

/* clang-format off */
const property sli_properties[] = {
    {"l",
     "\\p{L}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}"
     "-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}"
     "\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}"
     "\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}"
     "-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}"
     "-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"
     "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"letter",
     "\\p{L}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}"
     "-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}"
     "\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}"
     "\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}"
     "-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}"
     "-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"
     "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"lu",
     "\\p{Lu}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}", NULL},
    {"uppercaseletter",
     "\\p{Lu}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}", NULL},
    {"ll",
     "\\p{Ll}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}", NULL},
    {"lowercaseletter",
     "\\p{Ll}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}", NULL},
    {"lt",
     "\\p{Lt}", NULL},
    {"titlecaseletter",
     "\\p{Lt}", NULL},
    {"lc",
     "\\p{Lu}\\p{Ll}\\p{Lt}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{10d50}"
     "-\\x{10d65}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}", NULL},
    {"casedletter",
     "\\p{Lu}\\p{Ll}\\p{Lt}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{10d50}"
     "-\\x{10d65}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}", NULL},
    {"lm",
     "\\p{Lm}\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}\\x{1e4eb}", NULL},
    {"modifierletter",
     "\\p{Lm}\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}\\x{1e4eb}", NULL},
    {"lo",
     "\\p{Lo}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}\\x{1123f}"
     "-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"
     "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}"
     "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}"
     "\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}"
     "-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"otherletter",
     "\\p{Lo}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}\\x{1123f}"
     "-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"
     "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}"
     "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}"
     "\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}"
     "-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"m",
     "\\p{M}\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}"
     "-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}"
     "-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}"
     "\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}"
     "-\\x{1e5ef}", NULL},
    {"mark",
     "\\p{M}\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}"
     "-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}"
     "-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}"
     "\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}"
     "-\\x{1e5ef}", NULL},
    {"mn",
     "\\p{Mn}\\x{897}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113bb}-\\x{113c0}"
     "\\x{113ce}\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f36}-\\x{11f3a}"
     "\\x{11f40}\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{16129}\\x{1612d}"
     "-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}",
     "\\x{1171e}"},
    {"nonspacingmark",
     "\\p{Mn}\\x{897}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113bb}-\\x{113c0}"
     "\\x{113ce}\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f36}-\\x{11f3a}"
     "\\x{11f40}\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{16129}\\x{1612d}"
     "-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}",
     "\\x{1171e}"},
    {"mc",
     "\\p{Mc}\\x{cf3}\\x{113b8}-\\x{113ba}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}"
     "\\x{113cf}\\x{1171e}\\x{11f03}\\x{11f34}-\\x{11f35}\\x{11f3e}-\\x{11f3f}\\x{11f41}\\x{1612a}"
     "-\\x{1612c}", NULL},
    {"spacingmark",
     "\\p{Mc}\\x{cf3}\\x{113b8}-\\x{113ba}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}"
     "\\x{113cf}\\x{1171e}\\x{11f03}\\x{11f34}-\\x{11f35}\\x{11f3e}-\\x{11f3f}\\x{11f41}\\x{1612a}"
     "-\\x{1612c}", NULL},
    {"me",
     "\\p{Me}", NULL},
    {"enclosingmark",
     "\\p{Me}", NULL},
    {"n",
     "\\p{N}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}"
     "-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}", NULL},
    {"number",
     "\\p{N}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}"
     "-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}", NULL},
    {"nd",
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}"
     "-\\x{1e5fa}", NULL},
    {"decimalnumber",
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}"
     "-\\x{1e5fa}", NULL},
    {"nl",
     "\\p{Nl}", NULL},
    {"letternumber",
     "\\p{Nl}", NULL},
    {"no",
     "\\p{No}\\x{1d2c0}-\\x{1d2d3}", NULL},
    {"othernumber",
     "\\p{No}\\x{1d2c0}-\\x{1d2d3}", NULL},
    {"p",
     "\\p{P}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}"
     "-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}", NULL},
    {"punctuation",
     "\\p{P}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}"
     "-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}", NULL},
    {"pc",
     "\\p{Pc}", NULL},
    {"connectorpunctuation",
     "\\p{Pc}", NULL},
    {"pd",
     "\\p{Pd}\\x{10d6e}", NULL},
    {"dashpunctuation",
     "\\p{Pd}\\x{10d6e}", NULL},
    {"ps",
     "\\p{Ps}", NULL},
    {"openpunctuation",
     "\\p{Ps}", NULL},
    {"pe",
     "\\p{Pe}", NULL},
    {"closepunctuation",
     "\\p{Pe}", NULL},
    {"pi",
     "\\p{Pi}", NULL},
    {"initialpunctuation",
     "\\p{Pi}", NULL},
    {"pf",
     "\\p{Pf}", NULL},
    {"finalpunctuation",
     "\\p{Pf}", NULL},
    {"po",
     "\\p{Po}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}"
     "\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}", NULL},
    {"otherpunctuation",
     "\\p{Po}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}"
     "\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}", NULL},
    {"s",
     "\\p{S}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}"
     "\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}"
     "\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}"
     "\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}"
     "-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"symbol",
     "\\p{S}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}"
     "\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}"
     "\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}"
     "\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}"
     "-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"sm",
     "\\p{Sm}\\x{10d8e}-\\x{10d8f}", NULL},
    {"mathsymbol",
     "\\p{Sm}\\x{10d8e}-\\x{10d8f}", NULL},
    {"sc",
     "\\p{Sc}", NULL},
    {"currencysymbol",
     "\\p{Sc}", NULL},
    {"sk",
     "\\p{Sk}", NULL},
    {"modifiersymbol",
     "\\p{Sk}", NULL},
    {"so",
     "\\p{So}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccef}"
     "\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}"
     "-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}"
     "-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"
     "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"othersymbol",
     "\\p{So}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccef}"
     "\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}"
     "-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}"
     "-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"
     "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"z",
     "\\p{Z}", NULL},
    {"separator",
     "\\p{Z}", NULL},
    {"zs",
     "\\p{Zs}", NULL},
    {"spaceseparator",
     "\\p{Zs}", NULL},
    {"zl",
     "\\p{Zl}", NULL},
    {"lineseparator",
     "\\p{Zl}", NULL},
    {"zp",
     "\\p{Zp}", NULL},
    {"paragraphseparator",
     "\\p{Zp}", NULL},
    {"c",
     "\\p{C}",
     "\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{1c89}-\\x{1c8a}\\x{2427}-\\x{2429}"
     "\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}"
     "-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}"
     "\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}"
     "-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}"
     "\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}"
     "-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f5a}"
     "\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d79}"
     "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}"
     "\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}"
     "\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
     "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}"
     "-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}"
     "-\\x{323af}"},
    {"other",
     "\\p{C}",
     "\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{1c89}-\\x{1c8a}\\x{2427}-\\x{2429}"
     "\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}"
     "-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}"
     "\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}"
     "-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}"
     "\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}"
     "-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f5a}"
     "\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d79}"
     "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}"
     "\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}"
     "\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
     "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}"
     "-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}"
     "-\\x{323af}"},
    {"cc",
     "\\p{Cc}", NULL},
    {"control",
     "\\p{Cc}", NULL},
    {"cf",
     "\\p{Cf}\\x{13439}-\\x{1343f}", NULL},
    {"format",
     "\\p{Cf}\\x{13439}-\\x{1343f}", NULL},
    {"cn",
     "\\p{Cn}",
     "\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{1c89}-\\x{1c8a}\\x{2427}-\\x{2429}"
     "\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}"
     "-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}"
     "\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}"
     "-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}"
     "\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}"
     "-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f5a}"
     "\\x{1342f}\\x{13439}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d79}"
     "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}"
     "\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}"
     "\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
     "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}"
     "-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}"
     "-\\x{323af}"},
    {"unassigned",
     "\\p{Cn}",
     "\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{1c89}-\\x{1c8a}\\x{2427}-\\x{2429}"
     "\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}"
     "-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}"
     "\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}"
     "-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}"
     "\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}"
     "-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f5a}"
     "\\x{1342f}\\x{13439}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d79}"
     "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}"
     "\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}"
     "\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
     "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}"
     "-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}"
     "-\\x{323af}"},
    {"co",
     "\\p{Co}", NULL},
    {"privateuse",
     "\\p{Co}", NULL},
    {"arabic",
     "\\p{sc:Arabic}\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}", NULL},
    {"armenian",
     "\\p{sc:Armenian}", NULL},
    {"balinese",
     "\\p{sc:Balinese}\\x{1b4e}-\\x{1b4f}\\x{1b7f}", NULL},
    {"bengali",
     "\\p{sc:Bengali}", NULL},
    {"bopomofo",
     "\\p{sc:Bopomofo}", NULL},
    {"braille",
     "\\p{sc:Braille}", NULL},
    {"cherokee",
     "\\p{sc:Cherokee}", NULL},
    {"common",
     "\\p{sc:Common}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}"
     "-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}"
     "-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}"
     "-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}"
     "\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"cyrillic",
     "\\p{sc:Cyrillic}\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}", NULL},
    {"devanagari",
     "\\p{sc:Devanagari}\\x{11b00}-\\x{11b09}", NULL},
    {"ethiopic",
     "\\p{sc:Ethiopic}", NULL},
    {"georgian",
     "\\p{sc:Georgian}", NULL},
    {"greek",
     "\\p{sc:Greek}", NULL},
    {"gujarati",
     "\\p{sc:Gujarati}", NULL},
    {"gurmukhi",
     "\\p{sc:Gurmukhi}", NULL},
    {"han",
     "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"hangul",
     "\\p{sc:Hangul}", NULL},
    {"hebrew",
     "\\p{sc:Hebrew}", NULL},
    {"hiragana",
     "\\p{sc:Hiragana}\\x{1b132}", NULL},
    {"inherited",
     "\\p{sc:Inherited}", NULL},
    {"javanese",
     "\\p{sc:Javanese}", NULL},
    {"kannada",
     "\\p{sc:Kannada}\\x{cf3}", NULL},
    {"katakana",
     "\\p{sc:Katakana}\\x{1b155}", NULL},
    {"khmer",
     "\\p{sc:Khmer}", NULL},
    {"lao",
     "\\p{sc:Lao}\\x{ece}", NULL},
    {"latin",
     "\\p{sc:Latin}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}", NULL},
    {"malayalam",
     "\\p{sc:Malayalam}", NULL},
    {"mongolian",
     "\\p{sc:Mongolian}", NULL},
    {"myanmar",
     "\\p{sc:Myanmar}\\x{116d0}-\\x{116e3}", NULL},
    {"oriya",
     "\\p{sc:Oriya}", NULL},
    {"sinhala",
     "\\p{sc:Sinhala}", NULL},
    {"syriac",
     "\\p{sc:Syriac}", NULL},
    {"tamil",
     "\\p{sc:Tamil}", NULL},
    {"telugu",
     "\\p{sc:Telugu}", NULL},
    {"thaana",
     "\\p{sc:Thaana}", NULL},
    {"thai",
     "\\p{sc:Thai}", NULL},
    {"tibetan",
     "\\p{sc:Tibetan}", NULL},
    {"yi",
     "\\p{sc:Yi}", NULL},
    {"alphabetic",
     "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}"
     "\\x{1dd3}-\\x{1de6}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}"
     "-\\x{10d65}\\x{10d69}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}"
     "\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}"
     "-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113d1}\\x{113d3}"
     "\\x{11bc0}-\\x{11be0}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1342f}"
     "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612e}\\x{16d40}-\\x{16d6c}\\x{18cff}"
     "\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}"
     "\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"lowercase",
     "\\p{Lowercase}\\x{10fc}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{10d70}"
     "-\\x{10d85}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}", NULL},
    {"uppercase",
     "\\p{Uppercase}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}", NULL},
    {"whitespace",
     "\\p{White_Space}", NULL},
    {"emoji",
     "\\p{Emoji}\\x{1f6dc}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}"
     "-\\x{1fae9}\\x{1faf7}-\\x{1faf8}", NULL},
    {"emojipresentation",
     "\\p{Emoji_Presentation}\\x{1f6dc}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}"
     "-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"
     "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}", NULL},
    {"extendedpictographic",
     "\\p{Extended_Pictographic}", NULL},
    {"ideographic",
     "\\p{Ideographic}\\x{18cff}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"any",
     "\\p{Any}", NULL},
    {"alnum",
     "\\p{Alphabetic}\\p{Nd}\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}"
     "-\\x{1c8a}\\x{1dd3}-\\x{1de6}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"
     "\\x{10d40}-\\x{10d65}\\x{10d69}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}"
     "-\\x{11081}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}"
     "\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113d1}"
     "\\x{113d3}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}"
     "\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{11f50}-\\x{11f59}\\x{1342f}\\x{13441}-\\x{13446}"
     "\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612e}\\x{16130}-\\x{16139}\\x{16d40}-\\x{16d6c}\\x{16d70}"
     "-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}\\x{1e030}"
     "-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}\\x{1e4f0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}"
     "-\\x{1e5fa}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"alpha",
     "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}"
     "\\x{1dd3}-\\x{1de6}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}"
     "-\\x{10d65}\\x{10d69}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}"
     "\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}"
     "-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113d1}\\x{113d3}"
     "\\x{11bc0}-\\x{11be0}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1342f}"
     "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612e}\\x{16d40}-\\x{16d6c}\\x{18cff}"
     "\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}"
     "\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"blank",
     "\\p{Zs}\\x{9}", NULL},
    {"digit",
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}"
     "-\\x{1e5fa}", NULL},
    {"lower",
     "\\p{Lowercase}\\x{10fc}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{10d70}"
     "-\\x{10d85}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}", NULL},
    {"punct",
     "\\p{P}\\p{S}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}"
     "\\x{31ef}\\x{10d6e}\\x{10d8e}-\\x{10d8f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}"
     "-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1cc00}-\\x{1ccef}\\x{1cd00}"
     "-\\x{1ceb3}\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}"
     "-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}"
     "-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"
     "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}", NULL},
    {"space",
     "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
     "\\x{3000}", NULL},
    {"upper",
     "\\p{Uppercase}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}", NULL},
    {"word",
     "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
     "\\x{1f170}-\\x{1f189}\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}"
     "-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}"
     "\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}"
     "\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}"
     "\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}"
     "-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f50}-\\x{11f5a}"
     "\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d6c}"
     "\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}"
     "\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}"
     "-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"xdigit",
     "0-9A-Fa-f", NULL},
    {"cntrl",
     "\\p{Cc}", NULL},
    {"\\d",
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
     "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}"
     "-\\x{1e5fa}", NULL},
    {"\\h",
     "0-9A-Fa-f", NULL},
    {"\\s",
     "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
     "\\x{3000}", NULL},
    {"\\w",
     "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
     "\\x{1f170}-\\x{1f189}\\x{b2}-\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{897}\\x{cf3}\\x{ece}\\x{1c89}"
     "-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}"
     "\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}\\x{1123f}"
     "-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}"
     "\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{116d0}"
     "-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}"
     "\\x{11f3e}-\\x{11f42}\\x{11f50}-\\x{11f5a}\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}"
     "\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d6c}\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}"
     "\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}"
     "\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {"[\\w",
     "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
     "\\x{1f170}-\\x{1f189}\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}"
     "-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}"
     "\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}"
     "\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}"
     "\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}"
     "-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f50}-\\x{11f5a}"
     "\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d6c}"
     "\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}"
     "\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}"
     "-\\x{2ee5d}\\x{31350}-\\x{323af}", NULL},
    {NULL, NULL, NULL}};
/* clang-format on */
