-- The words of the language rules: of the guard, the features of a pair, and the lexical tier. One row per word, language
-- and class; callers turn it into constants, in a few milliseconds once per session.
-- Longer than 150 lines: the words.
create or replace function memfold_internal._lexicon()
returns table (word text, language text, class text, value text, readers text)
language sql immutable parallel safe
begin atomic
    -- word: in prose/1, or in scripts without spaces a phrase. language: ISO 639-1; '*': written the same in several.
    -- class: s grammar, p preposition or other marker of a role, & conjunction, n negation, q word that only joins a negation in
    -- languages of negative concord, # number, ~ number that is also an everyday word, * multiplier, o ordinal, m month, M month that
    -- is also an everyday word, w weekday, $ currency, u unit, t clock suffix, % per cent, S common subject or verb that is not a
    -- name, N verb that denies what follows, - none of these. Additional classes: f time, mode, quantity or person (_guard_says),
    -- v irregular past form (_guard_is_past), c word that changes a fact if only one text has it (_guard_other_language), r person.
    -- value: the meaning of a number, date, currency, unit, clock suffix or word of class f; the verb of v; the kind of difference
    -- of c; for N, the words that must follow (_guard_negations); t for titles among s and S.
    -- readers: g and d, the grammar and denial of _pair_features; t, the stop words of _tokens.
    select
        pg_catalog.split_part(entry.word, '=', 1),
        listed.language,
        listed.class,
        pg_catalog.split_part(entry.word, '=', 2),
        listed.readers
    -- noqa: disable=LT02
    from (values
    ('en', 's', '', '
    . however done having may ca wo mine yours hers us ours theirs whom whose here really just quite itself himself
    herself themselves oneself ''s'),
    ('en', 's', '', 'mr=t mrs=t ms=t dr=t madam=t sir=t mister=t rev=t prof=t st=t'),
    ('en', 's', 'g', '
    but this that these those been being am do does did has have had will would shall should can could might i me my you
    your he him his she her it its we our they them their who which what there also too very so then'),
    ('en', 's', 'gt', 'a an the is are was were be'),
    ('en', 'p', '', '
    off under against towards toward via per since until near behind above below around within like because'),
    ('en', 'p', 'g', 'at by from into onto about over than as after before during through between if when while'),
    ('en', 'p', 'gt', 'to with in on of for'),
    ('en', 'S', '', '
    user users customer customers client clients agent agents assistant bot system team teams employee employees person
    people man woman someone everybody anyone patient student speaker author caller subject participant developer
    developers engineer engineers manager member members owner admin company service server database app application
    project meeting today tomorrow yesterday currently now likes prefers loves enjoys works lives uses wants needs owns
    hates dislikes drinks eats plays speaks studies moved plans'),
    ('en', 'S', '', 'doctor=t reverend=t professor=t saint=t captain=t president=t senator=t governor=t'),
    ('en', 'S', '', '
    all every each both most some several few many only almost nearly perhaps maybe possibly probably formerly
    previously former current future'),
    ('en', 'S', 'd', 'everyone'),
    ('en', '&', '', '& , plus'),
    ('en', '&', 'g', 'or'),
    ('en', '&', 'gt', 'and'),
    ('en', 'n', '', '
    non aint isnt arent wasnt werent doesnt dont didnt hasnt havent hadnt wont wouldnt shouldnt couldnt cant mustnt
    neednt seldom scarcely incapable'),
    ('en', 'n', 'd', 'rarely hardly barely unable unless'),
    ('en', 'N', '', 'stops=>ing quit=>ing quits=>ing ceases=>ing refusing failing=>to decline=>to declines=>to declined=>to
    gave=>up give=>up gives=>up giving=>up'),
    ('en', 'N', 'd', '
    refuse refuses refused stop=>ing stopped=>ing cease=>ing ceased=>ing fail=>to fails=>to failed=>to'),
    ('en', 'n', 'd', 'not no never without none nobody nothing nowhere neither cannot lack lacks lacking lacked'),
    ('en', '#', '', '
    zero=0 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11 twelve=12 thirteen=13 fourteen=14
    fifteen=15 sixteen=16 seventeen=17 eighteen=18 nineteen=19 twenty=20 thirty=30 forty=40 fifty=50 sixty=60 seventy=70
    eighty=80 ninety=90'),
    ('en', '~', '', 'one=1 couple=2 pair=2 twice=2'),
    ('en', '*', '', '
    hundred=100 thousand=1000 million=1000000 billion=1000000000 dozen=12 k=1000 bn=1000000000 mn=1000000'),
    ('en', 'o', '', '
    first=1 second=2 third=3 fourth=4 fifth=5 sixth=6 seventh=7 eighth=8 ninth=9 tenth=10 eleventh=11 twelfth=12
    thirteenth=13 fourteenth=14 fifteenth=15 sixteenth=16 seventeenth=17 eighteenth=18 nineteenth=19 twentieth=20
    thirtieth=30 fortieth=40 fiftieth=50 sixtieth=60 seventieth=70 eightieth=80 ninetieth=90 hundredth=100
    thousandth=1000'),
    ('en', 'm', '', '
    january=1 february=2 april=4 june=6 july=7 august=8 september=9 october=10 november=11 december=12'),
    ('en', 'M', '', 'march=3 jan=1 feb=2 mar=3 apr=4 jun=6 jul=7 aug=8 sep=9 oct=10 okt=10 nov=11 dec=12 dez=12'),
    ('en', 'M', 'g', 'may=5'),
    ('en', 'w', '', '
    monday=1 tuesday=2 wednesday=3 thursday=4 friday=5 saturday=6 sunday=7 mondays=1 tuesdays=2 wednesdays=3 thursdays=4
    fridays=5 saturdays=6 sundays=7'),
    ('en', 't', '', 'am=0 pm=12 o''clock=0 oclock=0'),
    -- irregular past forms
    ('en', 'v', '', '
    went=go came=come took=take gave=give made=make told=tell knew=know thought=think saw=see got=get ran=run
    began=begin wrote=write drove=drive rode=ride ate=eat drank=drink spoke=speak slept=sleep kept=keep left=leave
    felt=feel met=meet sold=sell bought=buy taught=teach built=build sent=send spent=spend lost=lose won=win led=lead
    held=hold stood=stand understood=understand became=become wore=wear chose=choose grew=grow flew=fly swam=swim
    sang=sing paid=pay lent=lend found=find fell=fall heard=hear brought=bring fought=fight sat=sit lay=lie rose=rise
    caught=catch fed=feed hung=hang lit=light rang=ring shook=shake shot=shoot sought=seek swept=sweep swore=swear
    tore=tear stuck=stick struck=strike bit=bite blew=blow bent=bend froze=freeze withdrew=withdraw dug=dig slid=slide laid=lay
    learnt=learn dreamt=dream
    woke=wake forgot=forget broke=break drew=draw threw=throw hid=hide stole=steal meant=mean dealt=deal'),
    -- tense: n now, p past, f to come, c as a child
    ('en', 'f', '', '
    is=t.n are=t.n am=t.n was=t.p were=t.p isnt=t.n arent=t.n wasnt=t.p werent=t.p does=t.n do=t.n did=t.p doesnt=t.n
    dont=t.n didnt=t.p has=m.d>to|t.n have=m.d>to|t.n had=m.d>to|t.p hasnt=t.n havent=t.n hadnt=t.p been=t.np
    used=t!p>used former=t!p formerly=t!p previously=t!p ex=t!p erstwhile=t!p current=t.n retired=t!p upcoming=t!f currently=t.n now=t.n
    nowadays=t.n once=t.>a|t.>per|t.>every|t.<at|t.p future=t!f>word will=t.f+m.f going=t.f+m.f>to gonna=t.f+m.f
    longer=t.p<no anymore=t.p stopped=t.p quit=t.p ceased=t.p child=t!c<as_a kid=t!c<as_a boy=t!c<as_a girl=t!c<as_a
    teenager=t!c<as_a baby=t!c<as_a childhood=t.c youth=t.c young=t.c'),
    -- mode: p possible, a able or allowed, d a duty, f to come, w a wish, s seeming
    ('en', 'f', '', '
    might=m!p may=m.>#|m.<#|m.<in|m.<of|m.<since|m.<until|m.<by|m.<last|m.<next|m!pa could=m!pa couldnt=m.pa can=m.a able=m.a
    must=m.d should=m.w>like|m.d shall=m.df ought=m.d needs=m.d need=m.d would=m.fwp perhaps=m!p maybe=m!p possibly=m!p
    probably=m!p likely=m.p considering=m!p<be contemplating=m!p thinking=m!p>of|m!p>about planning=m!f>to|m!f>on
    plans=m!f>to plan=m!f>to planned=m!f>to intends=m!f>to intend=m!f>to intended=m!f>to hopes=m!w>to hope=m!w>to
    hoping=m!w>to wish=m!w>to wants=m!w>to|m!w>a want=m!w>to|m!w>a wanted=m!w>to|m!w>a wishes=m!w>to likes=m.w>to prefers=m.w>to
    asks=m.w>to asked=m.w>to pretends=m!s>to pretended=m!s>to seems=m!s>to appears=m!s>to allegedly=m!s
    supposedly=m!s apparently=m!s presumably=m!s seemingly=m!s reportedly=m!s alleged=m!s fake=m!s honorary=m!s interim=m!s
    deputy=m!s vice=m!s assistant=m!s>word acting=m!s>word associate=m!s>word junior=m!s>word trainee=m!s potential=m!p prospective=m!p aspiring=m!w tries=m!w>to tried=m!w>to trying=m!w>to yet=m!f>to if=m.c<even|m!c provided=m!c>that assuming=m!c
    willing=m!w>to offered=m!w>to promised=m!f>to expected=m!f>to supposed=m!d>to required=m.d>to'),
    -- how much: a all, m most, o some, k many, f few, b both, l only, e every other, n nearly, x except, s the most;
    -- bounds of a number: g more than, s less than, m at least, l at most, i about
    ('en', 'f', '', '
    all=q.a every=q.a each=q.a other=q!e<every most=b!l<at|q.s<the|q!m>word|q!m>of majority=q!m mostly=q.m mainly=q.m
    some=b.i>#|q.o several=q.ok many=q.k few=q.o<a|q!f both=q.b only=q.<not|q!l solely=q!l exclusively=q!l sole=q!l
    just=q.l merely=q.l strictly=q!l purely=q!l sometimes=q!t occasionally=q!t almost=b!is>#|q!n nearly=b!is>#|q!n except=q!x excluding=q!x barring=q!x apart=q!x>from aside=q!x>from
    but=q!x<anything|q!x<everything|q!x<everyone|q!x<all half=P!h>kin|q!h>word|q.h partly=q!h partially=q!h more=b!g>than#|q.k over=b!g># above=b!g># under=b!s>#
    below=b!s># less=b!s>than# fewer=b!s>than# least=b!m<at minimum=b.m maximum=b.l up=b!l>to# about=b!i># around=b!i>#
    roughly=b!i># approximately=b!i># circa=b!i># exactly=b.x'),
    -- who: 1 I, w we, 2 you, m he, f she; as what: S subject, O object, P owner
    ('en', 'f', '', '
    step=P!t>kin great=P!g>kin foster=P!t>kin law=P!l<in
    i=S.1 we=S.1w you=S.2+O.2 he=S.m she=S.f they=S.12mfw me=O.1 us=O.1w him=O.m them=O.12mfw my=P.1 mine=P.1 our=P.1w
    myself=O.z yourself=O.z himself=O.z herself=O.z themselves=O.z
    ours=P.1w your=P.2 yours=P.2 his=P.m her=P.f>word|O.f hers=P.f their=P.12mfw theirs=P.12mfw'),
    -- how often not: 0 never, r rarely
    ('en', 'f', '', '
    never=n.0 rarely=n!r seldom=n!r hardly=n!r barely=n!r scarcely=n!r often=n.r always=n.r usually=n.r frequently=n.r
    regularly=n.r much=n.r'),
    ('en', '-', 'd', '
    anything away denied denies deny end ended everything except exclude excluded excluding false impossible incorrect
    instead nor prevent prevented rather reject rejected ruled unlikely wrong'),
    ('en', '-', 'g', 'out up where'),
    ('en', '-', 't', '
    preference constraint decision observation code config pattern architecture root_cause tradeoff revert'),
    ('de', 's', '', '
    der die das den dem des ein eine einen einem einer eines ist sind war waren sein seine seinen ihr ihre ihren er sie
    es ich wir mich mir dir dich hat haben hatte hatten wird werden wurde wurden dass auch sehr sich'),
    ('de', 'p', '', '
    zu zum zur bei beim von vom mit in im ins auf aus nach für über unter als seit bis um durch gegen vor hinter neben
    zwischen wegen wenn weil'),
    ('de', 'S', '', 'benutzer benutzerin nutzer nutzerin kunde kundin anwender anwenderin'),
    ('de', '&', '', 'und oder sowie'),
    ('de', 'n', '', '
    nicht kein keine keinen keinem keiner keines nie niemals ohne niemand nichts weder nirgends nirgendwo'),
    ('de', '#', '', '
    zwei=2 drei=3 vier=4 fünf=5 sechs=6 sieben=7 neun=9 zehn=10 zwölf=12 dreizehn=13 vierzehn=14 fünfzehn=15 sechzehn=16
    siebzehn=17 achtzehn=18 neunzehn=19 zwanzig=20 dreißig=30 vierzig=40 fünfzig=50 sechzig=60 siebzig=70 achtzig=80
    neunzig=90'),
    ('de', '~', '', 'eins=1 acht=8 elf=11 null=0'),
    ('de', '*', '', 'hundert=100 tausend=1000 millionen=1000000 milliarden=1000000000'),
    ('de', 'o', '', '
    erste=1 ersten=1 erster=1 zweite=2 zweiten=2 zweiter=2 dritte=3 dritten=3 dritter=3 vierte=4 vierten=4 vierter=4
    fünfte=5 fünften=5 fünfter=5 sechste=6 sechsten=6 sechster=6 siebte=7 siebten=7 siebter=7 achte=8 achten=8 achter=8
    neunte=9 neunten=9 neunter=9 zehnte=10 zehnten=10 zehnter=10 elfte=11 elften=11 elfter=11 zwölfte=12 zwölften=12
    zwölfter=12 zwanzigste=20 zwanzigsten=20 zwanzigster=20'),
    ('de', 'm', '', 'januar=1 jänner=1 februar=2 märz=3 juni=6 juli=7 oktober=10 dezember=12'),
    ('de', 'w', '', '
    montag=1 dienstag=2 mittwoch=3 donnerstag=4 freitag=5 samstag=6 sonnabend=6 sonntag=7 montags=1 dienstags=2
    mittwochs=3 donnerstags=4 freitags=5 samstags=6 sonntags=7'),
    ('de', 't', '', 'uhr=0'),
    ('fr', 's', '', '
    le la les l un une des du est sont était être a as ai ont avait il elle ils elles on je tu nous vous ce cet cette
    ces son sa ses mon ma mes leur leurs qui que se très aussi'),
    ('fr', 'p', '', 'à au aux de d en dans chez par pour avec sur sous vers depuis comme contre entre'),
    ('fr', 'S', '', '
    préfère boit travaille utilise possède veut parle étudie mange voyage joue déteste aime adore habite vit utilisateur
    utilisatrice client'),
    ('fr', '&', '', 'et ou'),
    ('fr', 'n', '', 'ne sans'),
    ('fr', 'q', '', 'pas jamais rien aucun aucune'),
    ('fr', '#', '', '
    deux=2 trois=3 quatre=4 cinq=5 sept=7 huit=8 dix=10 onze=11 douze=12 treize=13 quatorze=14 quinze=15 seize=16
    vingt=20 trente=30 quarante=40 cinquante=50 soixante=60'),
    ('fr', '~', '', 'neuf=9'),
    ('fr', '*', '', 'cent=100 mille=1000 millions=1000000 milliards=1000000000'),
    ('fr', 'o', '', 'premier=1 première=1 deuxième=2 troisième=3 quatrième=4'),
    ('fr', 'm', '', '
    janvier=1 février=2 avril=4 juin=6 juillet=7 août=8 septembre=9 octobre=10 novembre=11 décembre=12'),
    ('fr', 'M', '', 'mai=5 mars=3 févr=2 avr=4 juil=7 déc=12'),
    ('fr', 'w', '', '
    lundi=1 mardi=2 mercredi=3 jeudi=4 vendredi=5 samedi=6 dimanche=7 lundis=1 mardis=2 mercredis=3 jeudis=4 vendredis=5
    samedis=6 dimanches=7'),
    ('es', 's', '', '
    y el los las lo uno una unos unas es son era ser está están estaba ha han su sus mi mis tu te muy también se'),
    ('es', 'p', '', 'al del en con por para sobre desde hasta como contra entre'),
    ('es', 'S', '', '
    vive reside prefiere toma bebe trabaja utiliza posee quiere habla estudia viaja juega odia ama adora cliente usuario
    usuaria'),
    ('es', '&', '', 'y e u'),
    ('es', 'n', '', 'sin'),
    ('es', 'q', '', 'nunca nada nadie ningún ninguno ninguna jamás tampoco'),
    ('es', '#', '', '
    cero=0 dos=2 tres=3 cuatro=4 cinco=5 seis=6 siete=7 ocho=8 nueve=9 diez=10 doce=12 trece=13 catorce=14 quince=15
    dieciséis=16 diecisiete=17 dieciocho=18 diecinueve=19 veinte=20 treinta=30 cuarenta=40 cincuenta=50 sesenta=60
    setenta=70 ochenta=80 noventa=90'),
    ('es', '*', '', 'cien=100 ciento=100 mil=1000 millones=1000000 millón=1000000'),
    ('es', 'o', '', 'primero=1 primera=1 segundo=2 segunda=2 tercero=3 tercera=3'),
    ('es', 'm', '', '
    enero=1 febrero=2 marzo=3 abril=4 mayo=5 junio=6 julio=7 agosto=8 septiembre=9 octubre=10 noviembre=11
    diciembre=12'),
    ('es', 'M', '', 'ene=1 abr=4 ago=8 dic=12'),
    ('es', 'w', '', 'lunes=1 martes=2 miércoles=3 jueves=4 viernes=5 sábado=6 domingo=7 sábados=6 domingos=7'),
    ('it', 's', '', 'gli i il uno è sono era suo sua suoi sue mio mia molto anche che'),
    ('it', 'p', '', '
    di da dal dalla dallo in nel nella con su per tra fra come del della dello dei degli delle al alla'),
    ('it', 'S', '', '
    vive abita preferisce beve lavora utilizza possiede vuole parla studia mangia viaggia gioca odia ama adora utente'),
    ('it', '&', '', 'ed'),
    ('it', 'n', '', 'senza'),
    ('it', 'q', '', 'nessuno nessuna niente nulla'),
    ('it', '#', '', '
    tre=3 quattro=4 cinque=5 sette=7 otto=8 dieci=10 undici=11 dodici=12 tredici=13 quattordici=14 quindici=15 sedici=16
    diciassette=17 diciotto=18 diciannove=19 venti=20 trenta=30 quaranta=40 cinquanta=50 sessanta=60 settanta=70
    ottanta=80 novanta=90'),
    ('it', '~', '', 'due=2 sei=6 nove=9'),
    ('it', '*', '', 'cento=100 mila=1000 milioni=1000000'),
    ('it', 'm', '', '
    gennaio=1 febbraio=2 aprile=4 maggio=5 giugno=6 luglio=7 settembre=9 ottobre=10 novembre=11 dicembre=12'),
    ('it', 'w', '', 'lunedì=1 martedì=2 mercoledì=3 giovedì=4 venerdì=5 sabato=6 domenica=7'),
    ('pt', 's', '', 'o os as um uma uns umas é são era está estão seu sua seus suas meu minha muito também'),
    ('pt', 'p', '', 'em na nos nas ao à do da dos das com por pelo pela para sobre desde até como'),
    ('pt', 'S', '', '
    mora prefere toma bebe trabalha utiliza possui quer fala estuda viaja joga odeia ama adora usuário usuária'),
    ('pt', 'n', '', 'não sem'),
    ('pt', 'q', '', 'ninguém nenhum nenhuma'),
    ('pt', '#', '', '
    dois=2 duas=2 três=3 quatro=4 sete=7 oito=8 dez=10 doze=12 treze=13 dezesseis=16 dezessete=17 dezoito=18 dezenove=19
    vinte=20 trinta=30 quarenta=40 cinquenta=50 sessenta=60 noventa=90'),
    ('pt', '*', '', 'cem=100 milhões=1000000 milhão=1000000'),
    ('pt', 'o', '', 'primeiro=1 primeira=1 terceiro=3 terceira=3'),
    ('pt', 'm', '', '
    janeiro=1 fevereiro=2 março=3 maio=5 junho=6 julho=7 setembro=9 outubro=10 novembro=11 dezembro=12'),
    ('ru', 's', '', 'это этот эта его её их он она они я мы вы был была было были есть свой свою тоже очень'),
    ('ru', 'p', '', 'в во на с со к ко у о об от до из за под над при для по через перед чем как'),
    ('ru', 'S', '', '
    живёт предпочитает пьёт работает использует любит говорит изучает учит пользователь пользовательница клиент'),
    ('ru', '&', '', 'и или'),
    ('ru', 'n', '', 'не нет без нельзя'),
    ('ru', 'q', '', 'никогда ничего никто никого'),
    ('ru', '#', '', '
    два=2 две=2 двух=2 три=3 трёх=3 четыре=4 пять=5 шесть=6 семь=7 восемь=8 девять=9 десять=10 одиннадцать=11
    двенадцать=12 двадцать=20 тридцать=30 сорок=40 пятьдесят=50'),
    ('ru', '~', '', 'один=1 одна=1'),
    ('ru', '*', '', 'сто=100 тысяча=1000 тысяч=1000 тысячи=1000 миллион=1000000 миллиона=1000000 миллионов=1000000'),
    ('ru', 'o', '', 'первый=1 первая=1 второй=2 вторая=2 третий=3 третья=3'),
    ('ru', 'm', '', '
    январь=1 января=1 январе=1 февраль=2 февраля=2 феврале=2 марта=3 марте=3 апрель=4 апреля=4 апреле=4 мая=5 июнь=6
    июня=6 июне=6 июль=7 июля=7 июле=7 август=8 августа=8 августе=8 сентябрь=9 сентября=9 сентябре=9 октябрь=10
    октября=10 октябре=10 ноябрь=11 ноября=11 ноябре=11 декабрь=12 декабря=12 декабре=12'),
    ('ru', 'M', '', 'май=5 мае=5 март=3'),
    ('ru', 'w', '', '
    понедельник=1 понедельникам=1 вторник=2 вторникам=2 среда=3 среду=3 средам=3 четверг=4 четвергам=4 пятница=5
    пятницу=5 пятницам=5 суббота=6 субботу=6 субботам=6 воскресенье=7 воскресеньям=7'),
    ('nl', 's', '', 'de het een zijn haar wordt ook'),
    ('nl', 'S', '', 'gebruiker'),
    ('nl', 'n', '', 'niet geen nooit zonder'),
    ('nl', '#', '', 'twee=2 drie=3 vijf=5 zes=6 zeven=7 negen=9 tien=10'),
    ('nl', 'w', '', 'maandag=1 dinsdag=2 woensdag=3 donderdag=4 vrijdag=5 zaterdag=6 zondag=7'),
    ('cs', 'n', '', '
    není nejsou nejsem nebyl nebyla nebylo nebude nemá nemají nemám nemáme neměl neměla nemůže nesmí neví nechce nejí'),
    ('cs', 'q', '', 'nikdy nikdo nikde žádný žádná žádné'),
    ('fi', 'n', '', 'ei eivät emme älä'),
    ('pl', 'n', '', 'nie bez'),
    ('pl', 'q', '', 'nigdy nikt nic'),
    ('sv', 'n', '', 'inte ingen aldrig utan'),
    ('da', 'n', '', 'ikke aldri uden'),
    ('hu', 'n', '', 'nem'),
    ('id', 'n', '', 'tidak bukan tanpa'),
    ('vi', 'n', '', 'không chưa'),
    ('tr', 'n', '', 'değil yok'),
    ('el', 'n', '', 'δεν δε όχι ποτέ χωρίσ'),
    ('he', 'n', '', 'לא אין בלי'),
    ('ar', 'n', '', 'لا لم لن ليس ليست بدون'),
    ('hi', 'n', '', 'नहीं मत बिना'),
    ('uk', 'n', '', 'ні нема'),
    ('zh', '&', '', '跟 及'),
    ('zh', '&', 't', '和 与 或'),
    ('zh', '-', 't', '的 了 在 是 把 被 给 从 到 也 都 就 对 又 所 而 且 但'),
    ('ja', '&', '', 'と や'),
    ('ko', 'n', '', '안'),
    -- words that change a fact if only one text has them, in languages without words of tense, mode and quantity (f)
    ('de', 'c', '', '
    ehemalig=tense ehemalige=tense ehemaliger=tense ehemaligen=tense frühere=tense früherer=tense früheren=tense früher=tense damals=tense
    damalige=tense künftig=tense künftige=tense bald=tense aufgehört=tense vielleicht=mode möglicherweise=mode eventuell=mode wahrscheinlich=mode
    vermutlich=mode angeblich=mode scheinbar=mode überlegt=mode erwägt=mode plant=mode will=mode möchte=mode wollte=mode sollte=mode soll=mode
    könnte=mode kann=mode darf=mode muss=mode würde=mode fast=quantity beinahe=quantity nahezu=quantity kaum=quantity selten=quantity
    manchmal=quantity nur=quantity lediglich=quantity ausschließlich=quantity außer=quantity mehr=quantity weniger=quantity mindestens=quantity
    höchstens=quantity ungefähr=quantity etwa=quantity einige=quantity manche=quantity meisten=quantity halb=quantity halbe=quantity
    teilweise=quantity'),
    ('fr', 'c', '', '
    ancien=tense ancienne=tense anciens=tense autrefois=tense jadis=tense bientôt=tense futur=tense future=tense arrêté=tense cessé=tense
    peut=mode probablement=mode prétendument=mode envisage=mode veut=mode voudrait=mode devrait=mode pourrait=mode doit=mode serait=mode
    aurait=mode presque=quantity seulement=quantity uniquement=quantity exclusivement=quantity sauf=quantity plus=quantity moins=quantity
    rarement=quantity parfois=quantity certains=quantity quelques=quantity plupart=quantity environ=quantity moitié=quantity'),
    ('es', 'c', '', '
    ex=tense antiguo=tense antigua=tense antiguamente=tense antes=tense pronto=tense futuro=tense futura=tense dejó=tense dejado=tense paró=tense
    quizá=mode quizás=mode talvez=mode probablemente=mode posiblemente=mode supuestamente=mode planea=mode piensa=mode quiere=mode querría=mode
    debería=mode podría=mode puede=mode debe=mode casi=quantity solo=quantity sólo=quantity solamente=quantity únicamente=quantity
    excepto=quantity salvo=quantity más=quantity menos=quantity raramente=quantity apenas=quantity algunos=quantity algunas=quantity
    mayoría=quantity mitad=quantity aproximadamente=quantity'),
    ('it', 'c', '', '
    prima=tense ormai=tense smesso=tense forse=mode probabilmente=mode vuole=mode vorrebbe=mode dovrebbe=mode potrebbe=mode può=mode deve=mode
    pensa=mode valuta=mode presunto=mode quasi=quantity soltanto=quantity solamente=quantity unicamente=quantity tranne=quantity eccetto=quantity
    più=quantity meno=quantity appena=quantity alcuni=quantity alcune=quantity maggior=quantity metà=quantity circa=quantity'),
    ('pt', 'c', '', '
    antigo=tense parou=tense deixou=tense provavelmente=mode quer=mode gostaria=mode deveria=mode poderia=mode pode=mode planeja=mode
    quase=quantity só=quantity somente=quantity exceto=quantity alguns=quantity algumas=quantity maioria=quantity metade=quantity'),
    ('ru', 'c', '', '
    бывший=tense бывшая=tense бывшего=tense бывшей=tense раньше=tense прежде=tense будущий=tense будущая=tense перестал=tense перестала=tense
    бросил=tense бросила=tense прекратил=tense прекратила=tense возможно=mode наверное=mode вероятно=mode может=mode хочет=mode планирует=mode
    собирается=mode думает=mode должен=mode должна=mode бы=mode якобы=mode почти=quantity только=quantity лишь=quantity кроме=quantity
    больше=quantity меньше=quantity редко=quantity иногда=quantity некоторые=quantity большинство=quantity примерно=quantity около=quantity'),
    ('nl', 'c', '', '
    voormalig=tense voormalige=tense vroeger=tense gestopt=tense toekomstige=tense misschien=mode mogelijk=mode waarschijnlijk=mode wil=mode
    zou=mode moet=mode bijna=quantity alleen=quantity slechts=quantity behalve=quantity meer=quantity minder=quantity zelden=quantity
    soms=quantity sommige=quantity meeste=quantity ongeveer=quantity'),
    ('zh', 'c', '', '
    前任=tense 现任=tense 曾=tense 过=tense 以前=tense 过去=tense 即将=tense 不再=tense 停止=tense 可能=mode 也许=mode 大概=mode 想=mode 打算=mode 考虑=mode 计划=mode 应该=mode
    必须=mode 据说=mode 几乎=quantity 差不多=quantity 仅=quantity 只有=quantity 除了=quantity 一半=quantity 大约=quantity 偶尔=quantity 有时=quantity 很少=quantity'),
    ('ja', 'c', '', '
    以前=tense やめ=tense 多分=mode たぶん=mode 恐らく=mode かもしれ=mode つもり=mode 予定=mode べき=mode らしい=mode ほとんど=quantity ほぼ=quantity だけ=quantity のみ=quantity
    しか=quantity 以外=quantity 半分=quantity 時々=quantity たまに=quantity めったに=quantity 隔週=quantity'),
    -- persons that a text may be about instead of the user
    ('en', 'r', '', '
    brother sister mother father mum mom dad wife husband son daughter partner friend cousin uncle aunt nephew niece grandmother grandfather
    grandma grandpa girlfriend boyfriend landlord landlady boss colleague coworker flatmate roommate neighbour neighbor children kids parents'),
    ('de', 'r', '', '
    bruder schwester mutter vater frau mann sohn tochter freund freundin chef chefin kollege kollegin nachbar nachbarin vermieter vermieterin
    mitbewohner mitbewohnerin onkel tante oma opa eltern kinder'),
    ('fr', 'r', '', '
    frère sœur mère père femme mari fils fille ami amie chef collègue voisin voisine propriétaire colocataire oncle tante cousin cousine parents
    enfants'),
    ('es', 'r', '', '
    hermano hermana madre padre esposa esposo marido mujer hijo hija amigo amiga jefe jefa compañero compañera vecino vecina casero casera tío tía
    primo padres hijos'),
    ('it', 'r', '', '
    fratello sorella madre padre moglie marito figlio figlia amico amica capo collega vicino vicina coinquilino zio zia cugino genitori figli'),
    ('pt', 'r', '', '
    irmão irmã mãe pai esposa marido filho filha amigo amiga chefe colega vizinho vizinha tio tia primo pais filhos'),
    ('ru', 'r', '', '
    брат сестра мать отец мама папа жена муж сын дочь друг подруга начальник коллега сосед соседка дядя тётя бабушка дедушка родители дети'),
    ('nl', 'r', '', '
    broer zus moeder vader vrouw man zoon dochter vriend vriendin baas collega buurman buurvrouw'),
    ('zh', 'r', '', '
    哥哥 弟弟 姐姐 妹妹 妈妈 爸爸 母亲 父亲 父母 妻子 丈夫 老婆 老公 儿子 女儿 孩子 朋友 男友 女友 同事 老板 上司 房东 室友 邻居 叔叔 阿姨 奶奶 爷爷'),
    ('ja', 'r', '', '
    兄 弟 姉 妹 母 父 両親 妻 夫 息子 娘 子供 友人 友達 彼氏 彼女 同僚 上司 大家 隣人'),
    ('*', '$', '', '
    $=$ €=€ £=£ ¥=¥ ₹=₹ ₽=₽ ₩=₩ ₺=₺ ₴=₴ ₪=₪ ฿=฿ usd=$ dollar=$ dollars=$ dólar=$ dólares=$ dollari=$ доллар=$ доллара=$
    долларов=$ eur=€ euro=€ euros=€ евро=€ gbp=£ sterling=£ jpy=¥ yen=¥ cny=yuan rmb=yuan yuan=yuan chf=chf franken=chf
    francs=francs inr=₹ rupee=₹ rupees=₹ rub=₽ ruble=₽ rubles=₽ рубль=₽ рубля=₽ рублей=₽ krw=₩ cad=cad aud=aud sek=sek
    nok=nok dkk=dkk pln=pln zloty=pln brl=brl reais=brl mxn=mxn peso=peso pesos=peso btc=btc bitcoin=btc eth=eth'),
    ('*', 'u', '', '
    kg=kg kilo=kg kilos=kg kilogram=kg kilograms=kg kilogramm=kg kilogramme=kg kilogrammes=kg kilogramos=kg кг=kg g=g
    gram=g grams=g gramm=g mg=mg lb=lb lbs=lb pound=lb pounds=lb pfund=lb oz=oz ounce=oz ounces=oz t=t tonne=t tonnes=t
    ton=ton tons=ton km=km kilometer=km kilometers=km kilometre=km kilometres=km kilómetros=km kilomètres=km км=km m=m
    meter=m meters=m metre=m metres=m metros=m mètres=m cm=cm centimeter=cm centimeters=cm centimetre=cm centimetres=cm
    mm=mm millimeter=mm millimeters=mm mile=mi miles=mi meilen=mi millas=mi milles=mi ft=ft foot=ft feet=ft inch=in
    inches=in zoll=in yard=yd yards=yd l=l liter=l liters=l litre=l litres=l litros=l ml=ml gallon=gal gallons=gal b=b
    byte=b bytes=b kb=kb mb=mb gb=gb tb=tb kib=kib mib=mib gib=gib tib=tib megabyte=mb megabytes=mb gigabyte=gb
    gigabytes=gb terabyte=tb terabytes=tb °c=°c celsius=°c °f=°f fahrenheit=°f hz=hz khz=khz mhz=mhz ghz=ghz w=w kw=kw
    mw=mw kwh=kwh v=v ms=ms millisecond=ms milliseconds=ms millisekunden=ms sec=s secs=s seconds=s sekunde=s sekunden=s
    secondes=s segundos=s secondi=s секунд=s min=min mins=min minute=min minutes=min minuten=min minuto=min minutos=min
    minuti=min минут=min минуты=min h=h hr=h hrs=h hour=h hours=h stunde=h stunden=h heure=h heures=h hora=h horas=h
    ora=h ore=h час=h часа=h часов=h day=d days=d tag=d tage=d tagen=d jour=d jours=d día=d días=d giorno=d giorni=d
    dia=d dias=d день=d дня=d дней=d week=wk weeks=wk woche=wk wochen=wk semaine=wk semaines=wk semana=wk semanas=wk
    settimana=wk settimane=wk неделя=wk недели=wk недель=wk month=mo months=mo monat=mo monate=mo monaten=mo mois=mo
    mes=mo meses=mo mese=mo mesi=mo mês=mo месяц=mo месяца=mo месяцев=mo year=y years=y jahr=y jahre=y jahren=y ans=y
    année=y années=y año=y años=y anno=y anni=y ano=y anos=y год=y года=y лет=y'),
    ('*', '%', '', '% percent pct prozent porcento pourcent процент процента процентов')
    ) as listed(language, class, readers, words)
    -- noqa: enable=LT02
    cross join lateral pg_catalog.string_to_table(pg_catalog.translate(listed.words, E'\n', ' '), ' ') as entry(word)
    where entry.word <> '';
end;

-- The words of _lexicon() with this letter among their readers, as the keys of an object.
create or replace function memfold_internal._lexicon_words(p_reader text) returns jsonb
language sql immutable strict parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(l.word, l.language)
    from memfold_internal._lexicon() as l
    where pg_catalog.strpos(l.readers, p_reader) > 0;
end;
